// Strict reading of settings: every message must name the place, the path, what was found and what was wanted.
#include "core/base/fields.h"

#include "core/base/error.h"
#include "core/base/schema.h"

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

namespace gpipe::base {
namespace {

enum class Mode { full, none };

struct Sample {
  bool flag = false;
  int64_t count = 4;
  double rate = 0.5;
  std::string name = "x";
  std::string device = "cpu";
  std::vector<int64_t> kernel{1, 1};
  std::vector<std::string> names;
  Tree raw;
  Mode mode = Mode::full;
  int64_t needed = 0;
};

FieldSet<Sample> sample_fields() {
  FieldSet<Sample> f{"sample"};
  f.add("flag", &Sample::flag).help("a switch");
  f.add("count", &Sample::count).range(1, 1024).unit("threads").help("how many");
  f.add("rate", &Sample::rate).range(0, 1, true);
  f.add("name", &Sample::name).nullable();
  f.add("device", &Sample::device).one_of({"cpu", "cuda"});
  f.add("kernel", &Sample::kernel).at_least(1).scalar_or_list();
  f.add("names", &Sample::names);
  f.add("raw", &Sample::raw);
  f.add("mode", &Sample::mode, {"full", "none"});
  f.add("needed", &Sample::needed).required().help("number of classes");
  return f;
}

Location at(int line, int column) { return {std::make_shared<const std::string>("run.yaml"), line, column}; }

/// {needed: 1, KEY: VALUE} with the value at line 3, column 5.
Tree with(const std::string& key, Tree value) {
  value.set_where(at(3, 5));
  Tree map = Tree::map({}, at(1, 1));
  map.set("needed", Tree::scalar("1"), at(2, 1));
  map.set(key, std::move(value), at(3, 1));
  return map;
}
Tree plain(const std::string& text) { return Tree::scalar(text); }
Tree quoted(const std::string& text) { return Tree::scalar(text, true); }

struct Row {
  std::string id;
  std::string key;
  Tree value;
  std::vector<std::string> says;
};

const std::vector<Row>& refused_rows() {
  static const std::vector<Row> rows{
      {"Y17 one letter wrong", "coutn", plain("1"), {"run.yaml:3:1", "s: unknown key \"coutn\"", "did you mean \"count\"?"}},
      {"Y17 nothing like it", "zzzzzz", plain("1"), {"unknown key \"zzzzzz\"", "known: flag, count"}},
      {"Y18 map for a scalar", "count", Tree::map({{"a", plain("1")}}), {"run.yaml:3:5", "s.count", "found a map"}},
      {"Y18 list for a scalar", "name", Tree::list(), {"wanted text, found a list"}},
      {"Y18 scalar for a list", "names", plain("a"), {"a list of texts", "found text \"a\""}},
      {"Y19 null for a value", "count", Tree(), {"run.yaml:3:5", "missing value", "whole number of threads"}},
      {"Y21 hexadecimal", "count", plain("0x10"), {"found 0x10", "hexadecimal", "write 16"}},
      {"Y21 decimal point", "count", plain("1.0"), {"found 1.0", "decimal point"}},
      {"Y21 in a list", "kernel", Tree::list({plain("3"), plain("03")}), {"s.kernel.1", "leading zero"}},
      {"Y21 below the range", "count", plain("0"), {"run.yaml:3:5: s.count", "0 is out of range", "1..1024 threads"}},
      {"Y21 above the range", "count", plain("1000000"), {"1000000 is out of range"}},
      {"Y22 infinite", "rate", plain(".inf"), {"s.rate", "finite"}},
      {"Y22 on an open end", "rate", plain("1"), {"1 is out of range", "at least 0 and below 1"}},
      {"Y24 quoted number", "count", quoted("5"), {"found text in quotes \"5\"", "leave the quotes out"}},
      {"Y24 quoted boolean", "flag", quoted("true"), {"wanted true or false", "leave the quotes out"}},
      {"yes for a boolean", "flag", plain("yes"), {"found yes", "write true"}},
      {"number for text", "name", plain("5"), {"wanted text, found a number 5", "put it in quotes"}},
      {"boolean for text", "name", plain("true"), {"a boolean true", "put it in quotes"}},
      {"C15 unknown word", "mode", plain("ful"), {"one of full, none", "\"ful\"", "did you mean \"full\"?"}},
      {"C15 unknown word of a list", "device", plain("gpu"), {"one of cpu, cuda", "\"gpu\""}},
      {"kernel below its range", "kernel", plain("0"), {"0 is out of range", "at least 1"}},
  };
  return rows;
}

}  // namespace

TEST_CASE("a wrong setting is reported with place, path, value and limit, and the default stays") {
  for (const Row& row : refused_rows()) {
    CAPTURE(row.id);
    Sample sample;
    Problems problems;
    sample_fields().read(with(row.key, row.value), "s", sample, problems);
    REQUIRE(problems.errors().size() == 1);
    for (const std::string& part : row.says) {
      CAPTURE(part);
      CAPTURE(problems.errors()[0]);
      CHECK(problems.errors()[0].find(part) != std::string::npos);
    }
    CHECK(sample.count == 4);
    CHECK(sample.kernel == std::vector<int64_t>{1, 1});
  }
}

TEST_CASE("a table alone gives the same messages as the reader made from it") {
  for (const Row& row : refused_rows()) {
    CAPTURE(row.id);
    Sample sample;
    Problems by_reader, by_table;
    sample_fields().read(with(row.key, row.value), "s", sample, by_reader);
    check_fields(with(row.key, row.value), "s", sample_fields().table(), by_table);
    CHECK(by_reader.errors() == by_table.errors());
  }
}

TEST_CASE("good settings of every type are read, and written back as they were") {
  Tree map = Tree::map();
  map.set("flag", plain("true"));
  map.set("count", plain("1024"));
  map.set("rate", plain("1e-2"));
  map.set("name", quoted("12"));
  map.set("device", plain("cuda"));
  map.set("kernel", plain("3"));
  map.set("names", Tree::list({plain("a"), quoted("true")}));
  map.set("raw", Tree::list({plain("z")}));
  map.set("mode", plain("none"));
  map.set("needed", plain("7"));
  Sample sample;
  Problems problems;
  sample_fields().read(map, "", sample, problems);
  CHECK(problems.errors() == std::vector<std::string>{});
  CHECK(sample.flag);
  CHECK(sample.count == 1024);
  CHECK(sample.rate == 0.01);
  CHECK(sample.name == "12");
  CHECK(sample.device == "cuda");
  CHECK(sample.kernel == std::vector<int64_t>{3});
  CHECK(sample.names == std::vector<std::string>{"a", "true"});
  CHECK(sample.raw.items().size() == 1);
  CHECK(sample.mode == Mode::none);

  Sample again;
  const Tree written = sample_fields().write(sample);
  sample_fields().read(written, "", again, problems);
  CHECK(problems.empty());
  CHECK(sample_fields().write(again) == written);
}

TEST_CASE("Y19: a required setting that is absent or empty is a missing value") {
  for (const bool empty : {false, true}) {
    Tree map = Tree::map({}, at(4, 2));
    if (empty) map.set("needed", Tree(), at(5, 3));
    Sample sample;
    Problems problems;
    sample_fields().read(map, "train", sample, problems);
    REQUIRE(problems.errors().size() == 1);
    CHECK(problems.errors()[0].find("train.needed: missing value") != std::string::npos);
    if (!empty) CHECK(problems.errors()[0].starts_with("run.yaml:4:2"));
  }
}

TEST_CASE("all faults of a map are reported at once, a nullable setting may be empty") {
  Tree map = Tree::map();
  map.set("flag", plain("1"));
  map.set("count", plain("x"));
  map.set("rat", plain("1"));
  map.set("name", Tree());
  Sample sample;
  Problems problems;
  sample_fields().read(map, "", sample, problems);
  CHECK(problems.errors().size() == 4);  // the fourth: `needed` is missing
  CHECK_THROWS_AS(problems.throw_if_any(), ConfigError);
}

TEST_CASE("fifty faults are shown, the rest is counted") {
  Problems problems;
  for (int i = 0; i < 73; ++i) problems.add({}, "", "fault");
  std::string message;
  try {
    problems.throw_if_any();
  } catch (const ConfigError& error) { message = error.what(); }
  CHECK(message.ends_with("... and 23 more"));
}

TEST_CASE("help names value, default, range, unit and meaning of each setting") {
  const std::string help = help_of(sample_fields().table(), "  ");
  CHECK(help.find("  count   integer 1..1024 threads") != std::string::npos);
  CHECK(help.find("cpu | cuda") != std::string::npos);
  CHECK(help.find("required  number of classes") != std::string::npos);
}

TEST_CASE("the JSON Schema says what the reader checks") {
  const nlohmann::json schema = schema_of(sample_fields().table());
  const auto& p = schema["properties"];
  CHECK(schema["additionalProperties"] == false);
  CHECK(schema["required"][0] == "needed");
  CHECK(schema["required"].size() == 1);
  CHECK(p["count"]["type"] == "integer");
  CHECK(p["count"]["minimum"] == 1);
  CHECK(p["count"]["maximum"] == 1024);
  CHECK(p["count"]["default"] == 4);
  CHECK(p["rate"]["exclusiveMaximum"] == 1);
  CHECK(!p["rate"].contains("maximum"));
  CHECK(p["mode"]["enum"] == nlohmann::json::array({"full", "none"}));
  CHECK(p["device"]["enum"] == nlohmann::json::array({"cpu", "cuda"}));
  CHECK(p["kernel"]["anyOf"][1]["items"]["minimum"] == 1);
  CHECK(p["name"]["anyOf"][1]["type"] == "null");
}

}  // namespace gpipe::base
