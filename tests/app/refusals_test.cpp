// What is refused instead of going on with something else than was meant.
#include "tests/app/tiny_run.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <sstream>

namespace gpipe::app {
namespace {

using test::contains;
using test::Outcome;
using test::run_child;
using test::TempFolder;

struct Place {
  Place() { test::write_file(folder / "run.yaml", test::made_up_config); }
  Outcome run(std::vector<std::string> words, const std::vector<std::string>& more = {}) const {
    words.insert(words.end(), more.begin(), more.end());
    return run_child(folder, words);
  }
  TempFolder folder;
};

}  // namespace

TEST_CASE("a run whose running averages overflow has diverged, and saves nothing that could not be loaded") {
  const TempFolder folder;
  test::write_file(folder / "run.yaml", test::tiny_config());
  const Outcome outcome = run_child(folder, {"train", "run.yaml", "--quiet", "--set", "train.learning_rate=1000"});
  CAPTURE(outcome.err);
  CHECK(outcome.code == 5);
  CHECK(contains(outcome.err, "running_var"));
  CHECK(contains(outcome.err, "train.learning_rate"));
  CHECK(test::read_json(folder / "run/result.json")["exit_code"] == 5);
  CHECK(run_child(folder, {"eval", "run.yaml"}).code == 0);  // what was saved before is whole
}

TEST_CASE("names and patterns of init_from that nothing answers to are refused") {
  const Place place;
  REQUIRE(place.run({"train", "run.yaml", "--quiet"}).code == 0);
  const std::string path = "train.init_from={path: run/checkpoints/step-00000006, ";
  const Outcome fresh = place.run({"train", "run.yaml", "--output", "b", "--set", path + "fresh: ['linear2.*']}"});
  CHECK(fresh.code == 2);
  CHECK(contains(fresh.err, "train.init_from.fresh: no parameter matches \"linear2.*\""));
  const Outcome names = place.run({"train", "run.yaml", "--output", "b", "--set", path + "names: {'module.': ''}}"});
  CHECK(names.code == 8);
  CHECK(contains(names.err, "module."));
  const Outcome run = place.run({"train", "run.yaml", "--output", "b", "--set", "train.init_from={path: run}"});
  CHECK(run.code == 8);
  CHECK(contains(run.err, "it is a run, whose checkpoints"));
  CHECK(!std::filesystem::exists(place.folder / "b"));
}

TEST_CASE("check refuses a plan that does not fit") {
  const Place place;
  CHECK(place.run({"check", "run.yaml"}).code == 0);
  const Outcome outcome = place.run({"check", "run.yaml", "--set", "pipeline.memory_limit=1KiB"});
  CHECK(outcome.code == 4);
  CHECK(contains(outcome.err, "does not fit"));
}

TEST_CASE("a run goes on in its own folder: another one beside it is refused") {
  const Place place;
  REQUIRE(place.run({"train", "run.yaml", "--quiet"}).code == 0);
  const Outcome outcome = place.run({"train", "run.yaml", "--resume", "run", "--output", "other"});
  CHECK(outcome.code == 2);
  CHECK(contains(outcome.err, "leave out --output"));
  std::filesystem::remove_all(place.folder / "run/checkpoints");
  const Outcome gone = place.run({"train", "run.yaml", "--resume"});
  CHECK(gone.code == 8);
  CHECK(contains(gone.err, "its checkpoints are gone"));
}

TEST_CASE("a profile of another precision is refused") {
  const Place place;
  REQUIRE(place.run({"profile", "run.yaml", "--output", "p.json"}).code == 0);
  CHECK(place.run({"plan", "run.yaml", "--profile-from", "p.json"}).code == 0);
  const Outcome outcome = place.run({"plan", "run.yaml", "--profile-from", "p.json", "--set", "train.precision=f16"});
  CHECK(outcome.code == 2);
  CHECK(contains(outcome.err, "another train.precision: f32 there, f16 here"));
}

TEST_CASE("a network definition in place of a configuration, and a file that is no JSON, are told from others") {
  const Place place;
  test::write_file(place.folder / "net.yaml", "input: {shape: [4]}\nlayers:\n- linear: {out_features: 2}\n");
  const Outcome network = place.run({"plan", "net.yaml"});
  CHECK(network.code == 2);
  CHECK(contains(network.err, "net.yaml:2:1"));
  CHECK(contains(network.err, "gpipe-train describe net.yaml"));
  CHECK(std::count(network.err.begin(), network.err.end(), '\n') == 1);
  test::write_file(place.folder / "p.json", "{\"format\": ");
  const Outcome json = place.run({"plan", "run.yaml", "--profile-from", "p.json"});
  CHECK(json.code == 2);
  CHECK(contains(json.err, "p.json: not valid JSON: parse error at line 1"));
}

TEST_CASE("predict takes data without targets, for classes and for values; nothing is learned from them") {
  const Place place;
  test::write_file(place.folder / "new.csv", "1,2,3,4,5,6\n6,5,4,3,2,1\n");
  const std::string input = "{csv: {path: new.csv, label: []}}";
  for (const std::string& values : {std::string(), std::string("network.2.linear.out_features=2")}) {
    std::vector<std::string> settings;
    if (!values.empty())
      settings = {"--set", values, "--set", "data.train={synthetic: {samples: 64, shape: [6], targets: 2, classes: 0, seed: 1}}"};
    CAPTURE(values);
    std::filesystem::remove_all(place.folder / "run");
    REQUIRE(place.run({"train", "run.yaml", "--quiet"}, settings).code == 0);
    const std::string out = values.empty() ? "classes.jsonl" : "values.jsonl";
    const Outcome outcome = place.run({"predict", "run.yaml", "--quiet", "--input", input, "--output", out}, settings);
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    std::istringstream lines(test::content_of(place.folder / out));
    int count = 0;
    for (std::string line; std::getline(lines, line); ++count) {
      const auto json = nlohmann::json::parse(line);
      CHECK(!json.contains("right"));
      CHECK(json[values.empty() ? "probabilities" : "values"].size() == (values.empty() ? 3 : 2));
    }
    CHECK(count == 2);
  }
  const Outcome train = place.run({"train", "run.yaml", "--output", "b", "--set", "data.train=" + input});
  CHECK(train.code == 2);
  CHECK(contains(train.err, "data.train: it has no targets"));
}

TEST_CASE("updates that were left out are counted in the last words") {
  const Place place;
  const Outcome outcome =
      place.run({"train", "run.yaml", "--set", "train.precision=f16", "--set", "train.loss_scale=1.7014118346046923e38"});
  CAPTURE(outcome.out);
  CHECK(outcome.code == 0);
  CHECK(contains(outcome.out, "6 of the updates were left out"));
}

TEST_CASE("limits beyond the whole numbers of a double stand in the schema as they are") {
  const Place place;
  const auto schema = nlohmann::json::parse(place.run({"schema"}).out);
  const auto& scale = schema["properties"]["train"]["properties"]["loss_scale"];
  CAPTURE(scale.dump());
  CHECK(scale["maximum"].get<double>() == 0x1p127);
  CHECK(scale["minimum"] == 0);
}

}  // namespace gpipe::app
