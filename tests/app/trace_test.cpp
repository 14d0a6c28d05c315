// train --trace: the files it leaves, and that a traced run is the same run.
#include "app/trace_writer.h"
#include "tests/app/tiny_run.h"
#include "tests/support/xml.h"

#include <doctest/doctest.h>

#include <map>

namespace gpipe::app {
namespace {

using test::contains;
using test::Outcome;
using test::run_child;
using test::TempFolder;

/// The steps of a trace, with how many task events each has.
std::map<int64_t, int> tasks_by_step(const nlohmann::json& trace) {
  std::map<int64_t, int> tasks;
  for (const auto& event : trace["traceEvents"])
    if (event["ph"] == "X" && event["args"].contains("micro_batch")) ++tasks[event["args"]["step"]];
  return tasks;
}

Outcome train(const TempFolder& folder, std::vector<std::string> more) {
  more.insert(more.begin(), {"train", "run.yaml"});
  return run_child(folder, more);
}

}  // namespace

TEST_CASE("the steps traced are the third and those after it, or sooner where fewer are left") {
  const auto steps = [](int64_t done, int64_t total, int64_t count) {
    const TracedSteps traced = traced_steps(done, total, count);
    return std::pair(traced.first, traced.last);
  };
  CHECK(steps(0, 100, 4) == std::pair<int64_t, int64_t>(3, 6));
  CHECK(steps(50, 100, 4) == std::pair<int64_t, int64_t>(53, 56));
  CHECK(steps(0, 5, 4) == std::pair<int64_t, int64_t>(2, 5));
  CHECK(steps(0, 4, 4) == std::pair<int64_t, int64_t>(1, 4));
  CHECK(steps(0, 3, 4) == std::pair<int64_t, int64_t>(1, 3));
  CHECK(steps(98, 100, 1) == std::pair<int64_t, int64_t>(100, 100));
  const TracedSteps none = traced_steps(100, 100, 4);
  CHECK(none.last < none.first);
}

TEST_CASE("a traced run leaves trace.json and timeline.svg, says which steps, and has the bits of an untraced one") {
  const TempFolder plain, traced;
  for (const TempFolder* folder : {&plain, &traced}) test::write_file(*folder / "run.yaml", test::tiny_config());
  const std::vector<std::string> settings{"--set", "train.steps=9", "--set", "train.validate_every=2", "--partitions", "3"};
  REQUIRE(train(plain, settings).code == 0);
  std::vector<std::string> more = settings;
  more.insert(more.end(), {"--trace", "4"});
  const Outcome outcome = train(traced, more);
  REQUIRE(outcome.code == 0);
  CHECK(contains(outcome.out, "traced: steps 3 to 6 in run/trace.json"));
  CHECK(contains(outcome.out, "step 6 in run/timeline.svg"));
  CHECK(test::timeless_metrics(plain / "run") == test::timeless_metrics(traced / "run"));
  CHECK((test::final_state(plain / "run") == test::final_state(traced / "run")));
  CHECK(!std::filesystem::exists(plain / "run/trace.json"));

  // 3 stages x 2 micro-batches x forward, recompute, backward; the validations in between are not in it
  CHECK(tasks_by_step(test::read_json(traced / "run/trace.json")) == std::map<int64_t, int>{{3, 18}, {4, 18}, {5, 18}, {6, 18}});
  const std::string svg = test::content_of(traced / "run/timeline.svg");
  CHECK(test::xml_fault(svg) == "");
  CHECK(contains(svg, ">gpipe: K = 3, M = 2, step 6 as measured, "));
  for (const char* name : {"trace.json", "timeline.svg"}) CHECK((test::mode_of(traced / "run" / name) & 077) == 0);
}

TEST_CASE("a resumed run traces steps of its own, with the JSON result still the last line") {
  const TempFolder folder;
  test::write_file(folder / "run.yaml", test::made_up_config);
  REQUIRE(train(folder, {"--quiet", "--trace", "100"}).code == 0);
  CHECK(tasks_by_step(test::read_json(folder / "run/trace.json")).size() == 6);  // all that there are
  const Outcome more = train(folder, {"--set", "train.steps=12", "--resume", "--trace", "2", "--json"});
  CAPTURE(more.err);
  REQUIRE(more.code == 0);
  CHECK(tasks_by_step(test::read_json(folder / "run/trace.json")) == std::map<int64_t, int>{{9, 12}, {10, 12}});
  const std::string last = more.out.substr(more.out.rfind('\n', more.out.size() - 2) + 1);
  CHECK(nlohmann::json::parse(last, nullptr, false)["status"] == "finished");
  const Outcome nothing = train(folder, {"--set", "train.steps=12", "--resume", "--trace", "2"});
  CHECK(nothing.code == 0);
  CHECK(contains(nothing.out, "traced: nothing"));
  CHECK(tasks_by_step(test::read_json(folder / "run/trace.json")).count(9) == 1);  // the older one stays
}

TEST_CASE("a wrong number of steps to trace is refused before anything is made") {
  const TempFolder folder;
  test::write_file(folder / "run.yaml", test::made_up_config);
  for (const char* steps : {"0", "x", "1.5", "10001"}) {
    const Outcome outcome = train(folder, {"--trace", steps});
    CHECK(outcome.code == 2);
    CHECK(contains(outcome.err, "error: --trace: "));
  }
  CHECK(run_child(folder, {"plan", "run.yaml", "--trace", "2"}).code == 2);
  CHECK(!std::filesystem::exists(folder / "run"));
}

}  // namespace gpipe::app
