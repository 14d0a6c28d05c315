// What a configuration file may look like, row by row: a fault that is not refused here would be read as something else.
#include "app/yaml_tree.h"

#include "core/base/error.h"
#include "core/base/fields.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace gpipe::app {
namespace {

using base::ConfigError;
using base::Tree;

std::string refusal(const std::string& text) {
  try {
    parse_yaml(text, "run.yaml");
  } catch (const ConfigError& error) {
    CHECK(error.exit_code() == base::ExitCode::usage);
    return error.what();
  }
  return "accepted";
}

std::string repeated(const std::string& piece, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += piece;
  return all;
}

/// Each level opens a bracket behind a word, so that no two stand side by side.
std::string nested_flow_maps(int levels) { return "a: " + repeated("{b: ", levels); }

std::string nested_maps(int levels) {
  std::string all;
  for (int i = 0; i < levels; ++i) all += std::string(static_cast<size_t>(i), ' ') + "a:\n";
  return all;
}

std::string many_keys(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += fmt::format("k{}: 1\n", i);
  return text;
}

std::string alias_bomb() {
  std::string text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
  for (int level = 1; level <= 9; ++level) {
    text += fmt::format("a{0}: &a{0} [", level);
    for (int i = 0; i < 9; ++i) text += fmt::format("*a{}, ", level - 1);
    text += "]\n";
  }
  return text;
}

struct Row {
  std::string id;
  std::string text;
  std::vector<std::string> says;  // all of these stand in the message
};

std::vector<Row> refused_rows() {
  using namespace std::string_literals;
  return {
      {"Y2 2 MiB of spaces", std::string(2U << 20U, ' '), {"run.yaml", "2.0 MiB", "1.5 MiB"}},
      {"Y4 3,000 nested block maps", nested_maps(1'000), {"run.yaml:65:65", "64 deep"}},
      {"Y4 100,000 nested brackets", "a: " + std::string(100'000, '['), {"run.yaml:1:68", "64 deep"}},
      {"Y4 100,000 nested braces", "a: " + std::string(100'000, '{'), {"run.yaml:1:68", "64 deep"}},
      {"Y4 100,000 nested maps in braces", nested_flow_maps(100'000), {"run.yaml:1:", "64 deep"}},
      {"Y4 100,000 nested dashes", repeated("- ", 100'000), {"64 deep"}},
      {"Y4 nested question marks", repeated("? ", 10'000), {"key must be a plain word"}},
      {"Y5 alias bomb", alias_bomb(), {"run.yaml:", "100000 values", "aliases expanded"}},
      {"Y6 self-referencing anchor", "a: 1\nb: &x\n  - *x\n", {"run.yaml:3:5", "never end"}},
      {"Y6 self-referencing map", "b: &x {c: *x}\n", {"run.yaml:1:11", "never end"}},
      {"Y7 merge key", "a: &x {b: 1}\nc:\n  <<: *x\n", {"run.yaml:3:3", "merge key (<<)"}},
      {"Y8 language tag", "a: !!python/object:os.system x\n", {"run.yaml:1:4", "tag", "python/object"}},
      {"Y8 custom tag", "a: !mine 5\n", {"run.yaml:1:4", "tag"}},
      {"Y8 core tag", "a: !!str 5\n", {"run.yaml:1:4", "tag"}},
      {"Y8 tag without a name", "a: ! 5\n", {"run.yaml:1:4", "tag"}},
      {"Y8 tag on a map", "a: !mine {b: 1}\n", {"run.yaml:1:4", "tag"}},
      {"Y8 tag on a list", "a: !mine\n  - 1\n", {"run.yaml:1:4", "tag"}},
      {"Y8 tag on a key", "!mine a: 1\n", {"run.yaml:1:1", "tag"}},
      {"Y9 two documents", "a: 1\n---\nb: 2\n", {"run.yaml:2:1", "one document"}},
      {"Y10 duplicate key at the top", "a: 1\nb: 2\na: 3\n", {"run.yaml:3:1", "duplicate key \"a\"", "run.yaml:1:1"}},
      {"Y10 duplicate key below", "t:\n  a: 1\n  b: 2\n  \"a\": 3\n", {"run.yaml:4:3", "duplicate key \"a\"", "run.yaml:2:3"}},
      {"Y11 tab indentation", "train:\n\tseed: 1\n", {"run.yaml:2:", "tab"}},
      {"Y13 NUL in a value", "a: x\0y\n"s, {"run.yaml:1:5", "NUL"}},
      {"Y13 NUL in a key", "a\0: x\n"s, {"run.yaml:1:2", "NUL"}},
      {"Y13 NUL by its escape", "a: \"x\\0y\"\n", {"run.yaml:1:4", "NUL"}},
      {"Y14 UTF-16, little end first",
       "\xFF\xFE"
       "a\0:\0 \0001\0"s,
       {"run.yaml:1:1", "UTF-16"}},
      {"Y14 UTF-16, big end first", "\xFE\xFF\0a\0:\0 \0001"s, {"run.yaml:1:1", "UTF-16"}},
      {"Y14 UTF-16 without a mark", "a\0:\0 \0001\0"s, {"run.yaml:1:2", "NUL"}},
      {"Y14 bad UTF-8", "a: 1\nb: x\xC3(\n", {"run.yaml:2:5", "0xc3", "UTF-8"}},
      {"Y14 overlong UTF-8", "a: \xC0\xAF\n", {"run.yaml:1:4", "UTF-8"}},
      {"Y14 a surrogate in UTF-8", "a: \xED\xA0\x80\n", {"run.yaml:1:4", "UTF-8"}},
      {"Y14 UTF-8 cut short", "a: \xE2\x82", {"run.yaml:1:4", "UTF-8"}},
      {"Y16 a lone comma", "\n,\n    ", {"run.yaml:2:1"}},
      {"Y16 text after a quoted end", "- m: x\n  c:\n    (a in (\n\"s\",\n    \"-c\"\n    )  )\n    )", {"run.yaml:"}},
      {"Y16 open bracket and colon", "[[:", {"run.yaml:1:"}},
      {"Y16 open brace and colon", "{# ke\ny{:", {"run.yaml:"}},
      {"Y25 1 MiB value", "a: " + std::string(1U << 20U, 'x'), {"run.yaml:1:4", "1.0 MiB", "64.0 KiB"}},
      {"a long key", std::string(300, 'k') + ": 1\n", {"run.yaml:1:1", "300", "256"}},
      {"control character", "a: x\x1By\n", {"run.yaml:1:5", "0x1b"}},
      {"end-of-file character", "a: 1\n\x04", {"run.yaml:2:1", "0x04"}},
      {"list as a key", "[a, b]: 1\n", {"run.yaml:1:1", "key"}},
      {"alias as a key", "a: &x b\n*x : 1\n", {"run.yaml:2:1", "alias"}},
      {"no key", ": 1\n", {"run.yaml:1:", "key"}},
      {"unknown anchor", "a: *x\n", {"run.yaml:1:"}},
      {"bracket that never closes", "a: [1, 2\n", {"run.yaml:", "not valid YAML"}},
      {"bracket that never opened", "a: 1]\nb: ]\n", {"run.yaml:2:"}},
      {"text after a quoted value", "a: \"x\" y\n", {"run.yaml:1:"}},
      {"200,000 values", "a: [" + repeated("1,1\n,", 100'000) + "1]", {"100000 values"}},
      {"200,000 values in one line", "a: [" + repeated("1,", 200'000) + "1]", {"run.yaml:1:", "20000 brackets"}},
      {"a million quotes", std::string(1'000'000, '"'), {"run.yaml:1:20001", "20000 brackets"}},
      {"5,000 keys", many_keys(5'000), {"run.yaml:1001:1", "at most 1000 keys"}},
  };
}

}  // namespace

TEST_CASE("a text that could surprise is refused with its place") {
  for (const Row& row : refused_rows()) {
    CAPTURE(row.id);
    const std::string message = refusal(row.text);
    for (const std::string& part : row.says) {
      CAPTURE(part);
      CHECK(message.find(part) != std::string::npos);
      if (message.find(part) == std::string::npos) MESSAGE(message.substr(0, 300));
    }
  }
}

TEST_CASE("Y1: an empty text, or one of comments alone, is no value") {
  for (const std::string text : {"", "\n", "# a comment\n", "# one\n\n# two", "---\n", "null\n"}) {
    CAPTURE(text);
    CHECK(parse_yaml(text, "run.yaml").is_null());
  }
}

TEST_CASE("Y5: plain anchors and aliases are expanded") {
  const Tree tree = parse_yaml("a: &x {b: [1, 2]}\nc: *x\nd: &s word\ne: [*s, *s]\n", "run.yaml");
  CHECK(*tree.find("c") == *tree.find("a"));
  CHECK(tree.find("e")->items()[1].text() == "word");
  CHECK(tree.find("c")->where().text() == "run.yaml:1:4");
}

TEST_CASE("Y14, Y26: a UTF-8 mark, any line ends and a missing last line end are accepted") {
  const Tree wanted = parse_yaml("a: 1\nb:\n  - x\n  - y\n", "run.yaml");
  CHECK(parse_yaml("\xEF\xBB\xBF"
                   "a: 1\nb:\n  - x\n  - y\n",
                   "run.yaml") == wanted);
  CHECK(parse_yaml("a: 1\r\nb:\r\n  - x\r\n  - y\r\n", "run.yaml") == wanted);
  CHECK(parse_yaml("a: 1\rb:\r  - x\r  - y\r", "run.yaml") == wanted);
  CHECK(parse_yaml("a: 1\nb:\n  - x\n  - y", "run.yaml") == wanted);
  CHECK(parse_yaml("\xEF\xBB\xBF"
                   "a: 1\r\nb:\r\n  - y",
                   "run.yaml")
            .find("b")
            ->items()[0]
            .where()
            .text() == "run.yaml:3:5");
}

TEST_CASE("values, keys and empty values know their places") {
  const Tree tree = parse_yaml("train:\n  seed: 7\n  steps:\nnetwork:\n  - relu\n  - conv2d: {kernel: 3}\n", "c/run.yaml");
  const Tree& train = *tree.find("train");
  CHECK(train.find("seed")->where().text() == "c/run.yaml:2:9");
  CHECK(train.key_where("seed").text() == "c/run.yaml:2:3");
  CHECK(train.find("steps")->where().text() == "c/run.yaml:3:3");
  CHECK(tree.find("network")->items()[1].find("conv2d")->find("kernel")->where().text() == "c/run.yaml:6:22");
}

TEST_CASE("quotes and block texts mark a value as text") {
  const Tree tree = parse_yaml("a: 1\nb: \"1\"\nc: '1'\nd: |\n  1\ne: ~\nf: \"~\"\n", "run.yaml");
  CHECK(!tree.find("a")->quoted());
  for (const char* key : {"b", "c", "d", "f"}) CHECK(tree.find(key)->quoted());
  CHECK(tree.find("e")->is_null());
}

TEST_CASE("C23: shell characters and names from the environment are taken literally") {
  const Tree tree = parse_yaml("a: $HOME/~/`ls`\nb: \"${USER}\"\nc: '%PATH%;rm'\n", "run.yaml");
  CHECK(tree.find("a")->text() == "$HOME/~/`ls`");
  CHECK(tree.find("b")->text() == "${USER}");
  CHECK(tree.find("c")->text() == "%PATH%;rm");
}

TEST_CASE("${...} is a plain word wherever a value stands, and moves nothing") {
  const Tree tree = parse_yaml("a: {b: ${min(x, 2)}, c: [${y}, n_${i + 1}]}\nd: ${z} # ${}\ne: '${q}'\n", "x.yaml");
  CHECK(tree.find("a")->find("b")->text() == "${min(x, 2)}");
  CHECK(tree.find("a")->find("c")->items()[0].text() == "${y}");
  CHECK(tree.find("a")->find("c")->items()[1].text() == "n_${i + 1}");
  CHECK(tree.find("a")->find("c")->where().column == 25);
  CHECK(tree.find("d")->text() == "${z}");
  CHECK(tree.find("e")->text() == "${q}");
  CHECK(tree.find("e")->quoted());
  CHECK_THROWS_AS(parse_yaml("a: [${b: 1}]\n", "x.yaml"), base::ConfigError);
}

}  // namespace gpipe::app
