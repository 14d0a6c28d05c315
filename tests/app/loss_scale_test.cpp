// A loss scale changes no bit while nothing overflows, comes down where something does, and outlives a kill.
#include "tests/app/tiny_run.h"

#include <doctest/doctest.h>

#include <cmath>

namespace gpipe::app {
namespace {

using test::contains;
using test::run_child;
using test::TempFolder;

struct Run {
  explicit Run(const std::vector<std::string>& settings) {
    test::write_file(folder / "run.yaml", test::made_up_config);
    std::vector<std::string> words{"train", "run.yaml", "--set", "train.clip_norm=0.5"};
    words.insert(words.end(), settings.begin(), settings.end());
    outcome = run_child(folder, words);
    for (const std::string& line : test::timeless_metrics(folder / "run")) metrics.push_back(nlohmann::json::parse(line));
  }
  TempFolder folder;
  test::Outcome outcome;
  std::vector<nlohmann::json> metrics;
};

}  // namespace

TEST_CASE("a loss scale changes no bit of the weights while nothing overflows, and grows") {
  const Run plain({}), scaled({"--set", "train.loss_scale=1024", "--set", "train.loss_scale_growth=2"});
  REQUIRE(plain.outcome.code == 0);
  REQUIRE(scaled.outcome.code == 0);
  CHECK((test::final_state(plain.folder / "run") == test::final_state(scaled.folder / "run")));
  REQUIRE(scaled.metrics.size() == plain.metrics.size());
  for (size_t i = 0; i < plain.metrics.size(); ++i) {
    if (!plain.metrics[i].contains("gradient_norm")) continue;
    CHECK(plain.metrics[i]["gradient_norm"] == scaled.metrics[i]["gradient_norm"]);
    CHECK(plain.metrics[i]["loss"] == scaled.metrics[i]["loss"]);
    CHECK_FALSE(plain.metrics[i].contains("loss_scale"));
  }
  CHECK(scaled.metrics.back()["loss_scale"] == 4096);  // of the last of six steps; it doubled after the second and the fourth
  CHECK(scaled.metrics.back()["skipped_updates"] == 0);
}

TEST_CASE("an overflow leaves out the update and halves the scale until there is none, also across a kill") {
  // Gradients of f32 overflow from about 2^128 on.
  const std::vector<std::string> settings{"--set", "train.loss_scale=1.7014118346046923e38",
                                          "--set", "train.learning_rate=0.01",
                                          "--set", "network.0.linear.init={constant: {value: 8}}"};
  const Run run(settings);
  CAPTURE(run.outcome.err);
  REQUIRE(run.outcome.code == 0);
  const double first = run.metrics.front()["loss_scale"], last = run.metrics.back()["loss_scale"];
  const int64_t skipped = run.metrics.back()["skipped_updates"];
  CHECK(skipped > 0);
  CHECK(skipped < 6);
  CHECK(last == first / std::ldexp(1.0, static_cast<int>(skipped)));
  CHECK(contains(run.outcome.out + run.outcome.err, "overflow at loss scale"));
  const test::TempFolder folder;
  test::write_file(folder / "run.yaml", test::made_up_config);
  std::vector<std::string> words{"train", "run.yaml", "--set", "train.clip_norm=0.5"};
  words.insert(words.end(), settings.begin(), settings.end());
  REQUIRE(run_child(folder, words).code == 0);
  std::filesystem::remove_all(test::checkpoints_of(folder / "run").back());  // back to step 4, as after a kill there
  words.emplace_back("--resume");
  CHECK(run_child(folder, words).code == 0);
  CHECK((test::final_state(folder / "run") == test::final_state(run.folder / "run")));
  const auto again = test::timeless_metrics(folder / "run");
  CHECK(nlohmann::json::parse(again.back()) == run.metrics.back());
}

TEST_CASE("f16: the loss scale stays where gradients fit into it, also across a kill") {
  // A factor of 65520 is infinite in f16: the gradients of the outputs at a scale of 2^24 are.
  const std::vector<std::string> scaled{
      "--set", "train.loss_scale=16777216", "--set", "train.loss_scale_growth=3", "--set", "train.steps=30",
      "--set", "train.learning_rate=0.01"};
  std::vector<std::string> settings = scaled;
  settings.insert(settings.end(), {"--set", "train.precision=f16"});
  const Run run(settings), wide(scaled);
  CAPTURE(run.outcome.err);
  REQUIRE(run.outcome.code == 0);
  CHECK(wide.metrics.back()["skipped_updates"] == 0);  // in f32 they fit
  double scale = 16777216;
  int64_t skipped = 0, good = 0, grown = 0;
  for (const nlohmann::json& line : run.metrics) {
    if (!line.contains("loss_scale")) continue;
    CHECK(line["loss_scale"] == scale);
    const bool overflowed = line["skipped_updates"] == skipped + 1;
    skipped += overflowed ? 1 : 0;
    good = overflowed ? 0 : good + 1;
    if (overflowed) scale /= 2;
    if (good < 3) continue;
    scale *= 2;
    good = 0;
    ++grown;
  }
  CHECK(skipped > 3);
  CHECK(grown > 2);
  CHECK(run.metrics.back()["skipped_updates"] == skipped);

  const test::TempFolder folder;
  test::write_file(folder / "run.yaml", test::made_up_config);
  std::vector<std::string> words{"train", "run.yaml", "--set", "train.clip_norm=0.5"};
  words.insert(words.end(), settings.begin(), settings.end());
  REQUIRE(run_child(folder, words).code == 0);
  std::filesystem::remove_all(test::checkpoints_of(folder / "run").back());  // back to step 28, as after a kill there
  words.emplace_back("--resume");
  CHECK(run_child(folder, words).code == 0);
  CHECK((test::final_state(folder / "run") == test::final_state(run.folder / "run")));
  CHECK(nlohmann::json::parse(test::timeless_metrics(folder / "run").back()) == run.metrics.back());
}

TEST_CASE("a loss scale that is no power of two is refused, with one that is") {
  const Run run({"--set", "train.loss_scale=1000"});
  CHECK(run.outcome.code == 2);
  CHECK(contains(run.outcome.err, "train.loss_scale"));
  CHECK(contains(run.outcome.err, "512"));
}

}  // namespace gpipe::app
