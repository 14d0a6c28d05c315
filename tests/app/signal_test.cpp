// Asked to stop by a signal, a run saves at the next mini-batch boundary and can go on; asked twice, it ends at once.
#include "tests/app/tiny_run.h"

#include <doctest/doctest.h>

namespace gpipe::app {
namespace {

using test::Child;
using test::Outcome;
using test::run_child;
using test::TempFolder;

bool has_metrics(const TempFolder& folder) {
  std::error_code none;
  return std::filesystem::exists(folder / "run/metrics.jsonl", none) &&
         std::filesystem::file_size(folder / "run/metrics.jsonl", none) > 0;
}

/// A step of this takes seconds, so that no mini-batch boundary comes between two signals.
const std::string k_long_step = R"(network:
- conv2d: {out_channels: 128, kernel_size: 3, padding: same}
- conv2d: {out_channels: 128, kernel_size: 3, padding: same}
- global_avg_pool
- linear: {out_features: 3}
pipeline: {micro_batches: 64}
data: {train: {synthetic: {samples: 256, shape: [64, 64, 8], classes: 3}}}
train: {batch_size: 128, steps: 100}
output: {folder: run}
)";

}  // namespace

TEST_CASE("E25: SIGINT, SIGTERM and SIGUSR1 save and end with 75, and --resume completes the run to the same bits") {
  const TempFolder whole;
  test::write_file(whole / "run.yaml", test::tiny_config());
  REQUIRE(run_child(whole, {"train", "run.yaml", "--quiet"}).code == 0);
  for (const int number : {SIGINT, SIGTERM, SIGUSR1}) {
    CAPTURE(number);
    const TempFolder folder;
    test::write_file(folder / "run.yaml", test::tiny_config());
    Child child(folder.path(), {"train", "run.yaml"});
    REQUIRE(test::wait_until([&] { return has_metrics(folder) || !child.running(); }));
    child.signal(number);
    const Outcome outcome = child.outcome();
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 75);
    CHECK(test::contains(outcome.out, "go on with --resume"));
    const auto result = test::read_json(folder / "run/result.json");
    CHECK(result["status"] == "stopped");
    CHECK(result["exit_code"] == 75);
    const auto saved = test::checkpoints_of(folder / "run");
    REQUIRE(!saved.empty());
    CHECK(test::read_json(saved.back() / "state.json")["step"] == result["steps"]);
    CHECK(run_child(folder, {"train", "run.yaml", "--resume", "--quiet"}).code == 0);
    CHECK((test::final_state(folder / "run") == test::final_state(whole / "run")));
    CHECK(test::timeless_metrics(folder / "run") == test::timeless_metrics(whole / "run"));
  }
}

TEST_CASE("E25: a second signal ends a run at once with 128 and its number") {
  for (const int second : {SIGINT, SIGTERM}) {
    CAPTURE(second);
    const TempFolder folder;
    test::write_file(folder / "run.yaml", k_long_step);
    Child child(folder.path(), {"train", "run.yaml", "--quiet"});
    REQUIRE(test::wait_until([&] { return std::filesystem::exists(folder / "run/config.yaml") || !child.running(); }));
    child.signal(SIGUSR1);
    REQUIRE(test::wait_until([&] { return !child.has_pending_signals(); }));
    child.signal(second);
    CHECK(child.wait() == 128 + second);
    CHECK(!test::contains(test::content_of(folder / "run/metrics.jsonl"), "\"step\":2,"));
  }
}

TEST_CASE("E25: a run that is stopped and continued goes on") {
  const TempFolder folder;
  test::write_file(folder / "run.yaml", test::tiny_config());
  Child child(folder.path(), {"train", "run.yaml", "--quiet"});
  REQUIRE(test::wait_until([&] { return has_metrics(folder) || !child.running(); }));
  child.signal(SIGSTOP);
  child.signal(SIGCONT);
  CHECK(child.wait() == 0);
}

}  // namespace gpipe::app
