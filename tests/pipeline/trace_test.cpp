// What the recorder writes down is what ran: every task once, in its device's order, waiting left out; and the JSON says it.
#include "core/pipeline/trace.h"

#include "tests/support/small_run.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

using namespace gpipe;
using namespace gpipe::pipeline;

namespace {

const test::SmallRun k_run{test::k_residual_network, {7, 6, 3}};

/// A schedule by hand: K = 2, M = 2, gpipe.
Schedule two_by_two() {
  ScheduleRequest request;
  request.devices = 2;
  request.micro_batches = 2;
  return find_schedule("gpipe").make(request);
}

/// Its tasks, a second each, and an update of half a second; `step` begins at `origin`.
StepTrace made_step(int64_t step, double origin) {
  StepTrace trace{step, {}, {}};
  const auto add = [&](int device, Work work, int micro, double start) {
    trace.spans.push_back({{work, micro, device}, device, origin + start, origin + start + 1, 0});
  };
  for (int device = 0; device < 2; ++device) {
    for (int micro = 0; micro < 2; ++micro) add(device, Work::forward, micro, device + micro);
    for (int micro = 0; micro < 2; ++micro) add(device, Work::backward, micro, 4 - device + micro);
    trace.parts.push_back({TaskObserver::Part::update, device, device, origin + 6, origin + 6.5});
  }
  return trace;
}

int64_t ns(const nlohmann::json& us) { return std::llround(us.get<double>() * 1000); }

struct Recorded {
  std::vector<StepTrace> steps;
  Schedule schedule;
  std::vector<StageLink> links;
};

/// Real steps of the small network, all of them recorded.
Recorded record(const PipelineOptions& options, int steps, const test::SmallRun& run = k_run) {
  const auto network = test::network_of(run.network, run.input, run.classes);
  const auto plan = make_plan(network, {options, run.batch_size, 1, {}});
  Engine engine(*plan);
  base::Problems problems;
  const auto optimizer = train::make_optimizer(base::Tree::scalar("sgd"), "", problems);
  test::initialise(engine, *optimizer, 1);
  const std::vector<device::Update> rules(engine.parameter_count(), optimizer->rule(1, 0.01, true));
  TaskRecorder recorder(plan->schedule);
  engine.set_task_observer(&recorder);
  Recorded recorded{{}, plan->schedule, links_of(*plan)};
  for (int step = 0; step < steps; ++step) {
    test::MadeBatch made(run, step);
    const StepResult result = engine.train(made.view(1), rules, 1.0);
    recorded.steps.push_back(recorder.take(step + 1));
    const StepTimes times = times_of(recorded.steps.back(), plan->schedule.devices);
    CHECK(times.seconds <= result.seconds);
    for (size_t device = 0; device < times.busy_seconds.size(); ++device)  // the engine's own count of work, waiting left out
      CHECK(std::abs(times.busy_seconds[device] - engine.busy_seconds()[device]) < 1e-6);
    engine.evaluate(made.view(1));  // is no training, and recorded neither here nor in the next step
  }
  engine.set_task_observer(nullptr);
  test::MadeBatch made(run, steps);
  engine.train(made.view(1), rules, 1.0);
  CHECK(recorder.take(0).spans.empty());
  return recorded;
}

PipelineOptions options_of(int64_t partitions, int64_t micro_batches, Rematerialize rematerialize) {
  PipelineOptions options;
  options.partitions = partitions;
  options.micro_batches = micro_batches;
  options.rematerialize = rematerialize;
  options.bind_threads = false;
  return options;
}

}  // namespace

TEST_CASE("the times of a step are its span, each device's work, and the share of waiting") {
  const StepTimes times = times_of(made_step(1, 100), 2);
  CHECK(times.seconds == doctest::Approx(6.5));
  CHECK(times.busy_seconds == std::vector<double>{4.5, 4.5});
  CHECK(times.bubble == doctest::Approx(1 - 9.0 / 13.0));
  CHECK(times_of({}, 2).bubble == 0);
  CHECK(times_of({}, 2).busy_seconds == std::vector<double>{0, 0});
}

TEST_CASE("the picture of a step begins with its first work, in ms") {
  const Timeline timeline = timeline_of(made_step(1, 100), "t", two_by_two());
  CHECK(timeline.end() == doctest::Approx(6500));
  CHECK(timeline.bars(0).front().start == 0);
  CHECK(timeline.bars(0).front().end == doctest::Approx(1000));
  CHECK(timeline.busy_share(0) == doctest::Approx(4.5 / 6.5));
  CHECK(timeline.occurs(Activity::update));
}

TEST_CASE("the JSON of a made-up step, event by event") {
  const auto json = nlohmann::json::parse(
      chrome_trace({made_step(7, 100)}, "a \"name\"", two_by_two(), {{0, 1, false}, {1, 0, true}}), nullptr, false);
  REQUIRE(json.is_object());
  CHECK(json["displayTimeUnit"] == "ms");
  std::map<std::string, int> phases;
  std::map<int, std::string> threads;
  for (const auto& event : json["traceEvents"]) {
    ++phases[event["ph"].get<std::string>()];
    if (event["name"] == "thread_name") threads[event["tid"]] = event["args"]["name"];
    if (event["name"] == "process_name") CHECK(event["args"]["name"] == "a \"name\"");
    if (event["name"] == "backward 1" && event["tid"] == 2) {
      CHECK(event["ts"] == 4e6);
      CHECK(event["dur"] == 1e6);
      CHECK(event["cat"] == "backward");
      CHECK(event["args"] == nlohmann::json{{"step", 7}, {"task", "backward"}, {"stage", 1}, {"micro_batch", 1}});
    }
    if (event["name"] == "step 7") CHECK(event["dur"] == 6.5e6);
  }
  CHECK(threads == std::map<int, std::string>{{0, "steps"}, {1, "stage 0"}, {2, "stage 1"}});
  CHECK(phases == std::map<std::string, int>{{"M", 7}, {"X", 11}, {"s", 4}, {"f", 4}});
}

TEST_CASE("threads of devices with several stages are named so, and spans say which stage") {
  Schedule schedule;
  schedule.devices = 2;
  schedule.stages = 4;
  schedule.micro_batches = 1;
  schedule.device_of = {0, 1, 1, 0};
  schedule.rows.resize(2);
  StepTrace step{1, {{{Work::backward_input, 0, 3}, 0, 0, 1, 0}}, {}};
  const std::string text = chrome_trace({step}, "", schedule, {});
  CHECK(text.find("device 0 (stages 0, 3)") != std::string::npos);
  CHECK(text.find("device 1 (stages 1, 2)") != std::string::npos);
  CHECK(text.find("backward_input 0 (stage 3)") != std::string::npos);
}

TEST_CASE("the recorder refuses more than it has room for, instead of allocating while a step runs") {
  TaskRecorder recorder(two_by_two());
  const auto now = std::chrono::steady_clock::now();
  for (int micro = 0; micro < 2; ++micro)
    for (const Work work : {Work::forward, Work::backward}) recorder.task({work, micro, 1}, now, now);
  CHECK_THROWS_AS(recorder.task({Work::forward, 0, 1}, now, now), base::BugError);
  CHECK(recorder.take(1).spans.size() == 4);
  CHECK_NOTHROW(recorder.task({Work::forward, 0, 1}, now, now));
}

TEST_CASE("real steps: every task of the schedule once, in its order, without overlap, the parts after the last task") {
  for (const auto rematerialize : {Rematerialize::full, Rematerialize::none})
    for (const int64_t partitions : {1, 3}) {
      const Recorded recorded = record(options_of(partitions, 4, rematerialize), 2);
      for (const StepTrace& step : recorded.steps) {
        for (int device = 0; device < recorded.schedule.devices; ++device) {
          std::vector<Task> ran;
          double last = step.start();
          for (const Span& span : step.spans) {
            if (span.device != device) continue;
            ran.push_back(span.task);
            CHECK(span.start >= last);
            CHECK(span.end >= span.start);
            last = span.end;
          }
          CHECK(ran == recorded.schedule.rows[static_cast<size_t>(device)]);
          int parts = 0;
          for (const PartSpan& part : step.parts) {
            if (part.device != device) continue;
            CHECK(part.start >= last);
            last = part.end;
            ++parts;
          }
          CHECK(parts == 2);
        }
      }
      CHECK(recorded.steps[0].end() <= recorded.steps[1].start());
    }
}

TEST_CASE("real steps: the parts of a device's stages do not overlap, with several stages a device and with tied parameters") {
  const test::SmallRun tied{.network =
                                "- linear: {out_features: 6}\n- tanh\n- linear: {out_features: 6}\n"
                                "  tied: {weight: linear_1.weight}\n- silu\n- linear: {out_features: 6}\n"
                                "- linear: {out_features: 4}\n",
                            .input = {6}};
  for (const test::SmallRun* run : {&k_run, &tied}) {
    PipelineOptions options = options_of(2, 4, Rematerialize::full);
    options.schedule = "interleaved";
    options.chunks = 2;
    const Recorded recorded = record(options, 2, *run);
    for (const StepTrace& step : recorded.steps)
      for (int device = 0; device < 2; ++device) {
        std::vector<PartSpan> parts;
        for (const PartSpan& part : step.parts)
          if (part.device == device) parts.push_back(part);
        CHECK(parts.size() == (run == &tied ? 8 : 4));
        for (size_t i = 1; i < parts.size(); ++i) CHECK(parts[i].start >= parts[i - 1].end);
      }
  }
}

TEST_CASE("real steps as JSON: complete events nest and do not overlap on a thread, and flows join their spans") {
  const Recorded recorded = record(options_of(3, 4, Rematerialize::full), 2);
  REQUIRE(recorded.links.size() >= 4);  // forwards and back over two cuts
  const auto json =
      nlohmann::json::parse(chrome_trace(recorded.steps, "small", recorded.schedule, recorded.links), nullptr, false);
  REQUIRE(json.is_object());
  std::map<int, std::vector<std::pair<int64_t, int64_t>>> by_thread;
  std::map<int, const nlohmann::json*> started;
  size_t flows = 0;
  const auto& events = json["traceEvents"];
  const auto around = [&](const nlohmann::json& flow) {  // the complete event that a viewer binds an end to
    for (const auto& event : events)
      if (event["ph"] == "X" && event["tid"] == flow["tid"] && ns(event["ts"]) <= ns(flow["ts"]) &&
          ns(flow["ts"]) < std::max(ns(event["ts"]) + 1, ns(event["ts"]) + ns(event["dur"])))
        return event;
    return nlohmann::json();
  };
  for (const auto& event : events) {
    if (event["ph"] == "X") by_thread[event["tid"]].emplace_back(ns(event["ts"]), ns(event["ts"]) + ns(event["dur"]));
    if (event["ph"] == "s") started[event["id"]] = &event;
    if (event["ph"] != "f") continue;
    ++flows;
    REQUIRE(started.count(event["id"]) == 1);
    const auto from = around(*started[event["id"]]), to = around(event);
    REQUIRE((from.is_object() && to.is_object()));
    const StageLink link{from["args"]["stage"], to["args"]["stage"], event["name"] == "gradient"};
    CHECK(std::find(recorded.links.begin(), recorded.links.end(), link) != recorded.links.end());
    CHECK(from["args"]["micro_batch"] == to["args"]["micro_batch"]);
    CHECK(from["args"]["step"] == to["args"]["step"]);
    CHECK(from["args"]["task"] == (link.gradient ? "backward" : "forward"));
    CHECK(to["args"]["task"] == from["args"]["task"]);
    CHECK(ns(from["ts"]) + ns(from["dur"]) <= ns(to["ts"]));
  }
  CHECK(flows == started.size());
  CHECK(flows == recorded.links.size() * 4 * 2);
  REQUIRE(by_thread.size() == 4);
  for (auto& [thread, spans] : by_thread) {
    CHECK(spans.size() == (thread == 0 ? 2 : 2 * (3 * 4 + 2)));
    std::sort(spans.begin(), spans.end());
    for (size_t i = 1; i < spans.size(); ++i) CHECK(spans[i].first >= spans[i - 1].second);
  }
}
