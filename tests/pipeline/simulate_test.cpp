// The simulator against published figures, closed forms, and an independent evaluation of the same rules.
#include "core/pipeline/simulate.h"

#include "core/base/error.h"
#include "core/base/rng.h"
#include "tests/pipeline/made_schedule.h"
#include "tests/support/paths.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>

using namespace gpipe;
using pipeline::Schedule;
using pipeline::Simulation;
using pipeline::SimulationInput;
using pipeline::Span;
using pipeline::StageCost;
using pipeline::Task;
using pipeline::Work;
using test::made;

namespace {

/// The same costs for every device; each of its stages has its share.
SimulationInput equal_costs(const Schedule& schedule, const StageCost& cost) {
  const double part = static_cast<double>(schedule.devices) / schedule.stages;
  SimulationInput input;
  input.costs.assign(static_cast<size_t>(schedule.stages),
                     {cost.forward * part, cost.backward_input * part, cost.backward_weight * part, cost.recompute * part});
  return input;
}

/// What no micro-batch needs: the longest span less the work of a device.
double bubble(const Schedule& schedule, const StageCost& cost) {
  const Simulation result = simulate(schedule, equal_costs(schedule, cost));
  double span = 0;
  for (const auto& times : result.devices) span = std::max(span, times.last_end - times.first_start);
  return span - result.devices.front().busy;
}

using Times = std::map<std::tuple<int, int, int>, std::pair<double, double>>;  // work, stage, micro: start, end

double duration(const StageCost& cost, Work work) {
  const double all[] = {cost.forward, cost.recompute, cost.backward_input + cost.backward_weight, cost.backward_input,
                        cost.backward_weight};
  return all[static_cast<size_t>(work)];
}

/// Starts everything at 0 and moves what starts too early, over and over until nothing moves.
Times by_iteration(const Schedule& schedule, const SimulationInput& input) {
  Times times;
  const auto end_of = [&](std::initializer_list<Work> works, int stage, int micro) {
    double end = 0;
    for (const Work work : works)
      if (const auto at = times.find({static_cast<int>(work), stage, micro}); at != times.end()) end = at->second.second;
    return end;
  };
  for (bool moved = true; moved;) {
    moved = false;
    std::map<std::pair<int, int>, double> link_free;  // sends of a device are in the order of its row
    std::map<std::tuple<bool, int, int>, double> arrivals;
    for (size_t device = 0; device < schedule.rows.size(); ++device)
      for (const Task& task : schedule.rows[device]) {
        const bool forward = task.work == Work::forward;
        const int to = forward ? task.stage + 1 : task.stage - 1;
        if (task.work == Work::recompute || task.work == Work::backward_weight || to < 0 || to >= schedule.stages) continue;
        double end = end_of({task.work}, task.stage, task.micro);
        const int target = schedule.device_of[static_cast<size_t>(to)];
        if (target != static_cast<int>(device)) {
          const auto& sizes = forward ? input.forward_bytes : input.backward_bytes;
          const double carried = sizes.empty() || input.link.bytes_per_second == 0
                                     ? 0
                                     : sizes[static_cast<size_t>(task.stage)] / input.link.bytes_per_second;
          double& free = link_free[{static_cast<int>(device), target}];
          if (input.link.queues) end = std::max(end, free);
          end += carried;
          free = end;
          end += input.link.latency;
        }
        arrivals[{forward, to, task.micro}] = end;
      }
    for (const auto& row : schedule.rows) {
      double free = 0;
      for (const Task& task : row) {
        double start = free;
        if (task.work == Work::forward || task.work == Work::backward || task.work == Work::backward_input)
          if (const auto at = arrivals.find({task.work == Work::forward, task.stage, task.micro}); at != arrivals.end())
            start = std::max(start, at->second);
        free = start + duration(input.costs[static_cast<size_t>(task.stage)], task.work);
        auto& known = times[{static_cast<int>(task.work), task.stage, task.micro}];
        if (known != std::pair{start, free}) moved = true;
        known = {start, free};
      }
    }
  }
  return times;
}

}  // namespace

TEST_CASE("the bubble rates of the zero-bubble paper come out") {
  const auto path = test::shared("reference/zero_bubble_rates.json");
  if (!path) return;
  const auto reference = nlohmann::json::parse(std::ifstream(*path));
  for (const auto& row : reference.at("rows")) {
    const auto rate = [&](const char* name, double memory_limit) {
      const auto& type = pipeline::find_schedule(name);
      auto request = test::request_for(type, row.at("stages"), row.at("micro_batches"), row.at("interleaved_chunks"));
      const double part = 1.0 / request.chunks;
      request.costs.assign(static_cast<size_t>(request.devices * request.chunks),
                           {part * row.at("forward_ms").get<double>(), part * row.at("backward_input_ms").get<double>(),
                            part * row.at("backward_weight_ms").get<double>()});
      request.transfer = row.at("transfer_ms");
      request.memory_limit = memory_limit;
      request.weight_memory_share = row.at("weight_memory_share");
      SimulationInput input;
      input.costs = request.costs;
      input.link.latency = request.transfer;
      input.holdings.assign(request.costs.size(), {part, part * request.weight_memory_share});
      const Schedule schedule = made(type, request, false);
      pipeline::check_schedule(schedule);
      const Simulation result = simulate(schedule, input);
      if (memory_limit > 0)
        for (const auto& times : result.devices) CHECK(times.peak_held <= memory_limit + 1e-9);
      return result.bubble_rate;
    };
    CAPTURE(row.dump());
    const auto& published = row.at("bubble_rate");
    for (const char* name : {"1f1b", "zb_h1", "zb_h2"})
      CHECK(fmt::format("{} {:.4f}", name, rate(name, 0)) == fmt::format("{} {:.4f}", name, published.at(name).get<double>()));
    CHECK(std::abs(rate("interleaved", 0) - published.at("interleaved").get<double>()) <= 0.004);
    const double devices = row.at("stages");
    CHECK(rate("zb_auto", devices) <= published.at("zb_1p").get<double>() + 5e-5);  // given to four digits
    CHECK(rate("zb_auto", 2 * devices) <= published.at("zb_2p").get<double>() + 5e-5);
  }
}

TEST_CASE("bubbles are the closed forms, exactly") {
  for (const int k : {1, 2, 3, 4, 8})
    for (const int m : {1, 2, 8, 16, 24}) {
      for (const StageCost& cost : {StageCost{1, 1, 1, 0}, StageCost{3, 4, 2, 0}, StageCost{5, 6, 4, 5}}) {
        CAPTURE(fmt::format("K={} M={} F={} B={} W={}", k, m, cost.forward, cost.backward_input, cost.backward_weight));
        const double back = cost.backward_input + cost.backward_weight;
        for (const char* name : {"gpipe", "1f1b"}) {
          CHECK(bubble(made(name, k, m), cost) == (k - 1) * (cost.forward + back));
          const Schedule schedule = made(name, k, m);
          const Simulation result = simulate(schedule, equal_costs(schedule, cost));
          CHECK(result.makespan == (m + k - 1) * (cost.forward + back));
          CHECK(result.bubble_rate == doctest::Approx((k - 1.0) / (m + k - 1)).epsilon(1e-14));
        }
        // Recompute waits for nobody: it is in the time of every micro-batch, not in the bubble.
        const Schedule recomputed = made("gpipe", k, m, true);
        CHECK(simulate(recomputed, equal_costs(recomputed, cost)).makespan ==
              m * (cost.forward + cost.recompute + back) + (k - 1) * (cost.forward + back));
        if (m >= 2 * k) {
          CHECK(bubble(made("zb_h1", k, m), cost) == (k - 1) * (cost.forward + cost.backward_input - cost.backward_weight));
          CHECK(bubble(made("zb_h2", k, m), cost) ==
                std::max(0.0, (k - 1) * (cost.forward + cost.backward_input - 2 * cost.backward_weight)));
        }
        for (const int v : {2, 4}) {
          if (m % k != 0) continue;
          const auto& type = pipeline::find_schedule("interleaved");
          const Schedule schedule = made(type, test::request_for(type, k, m, v), false);
          CHECK(bubble(schedule, cost) == (k - 1) * (cost.forward + back) / v);
        }
      }
    }
}

TEST_CASE("short pipelines take (M+K-1)(F+B)+W with the weight gradients put off") {
  for (const int k : {2, 4, 8})
    for (int m = 1; m <= k; ++m) {
      const StageCost cost{4, 5, 3, 0};
      auto request = test::request_for(pipeline::find_schedule("zb_auto"), k, m);
      request.costs.assign(static_cast<size_t>(k), cost);
      const Schedule schedule = made(pipeline::find_schedule("zb_auto"), request, false);
      CAPTURE(fmt::format("K={} M={}\n{}", k, m, pipeline::picture(schedule)));
      CHECK(simulate(schedule, equal_costs(schedule, cost)).makespan == (m + k - 1) * (4 + 5) + 3);
    }
}

TEST_CASE("zb_v leaves no bubble from M = 2K - 1 on, and 2K - 1 - M units before, in 1f1b's memory") {
  for (const int k : {2, 3, 4, 8, 16})
    for (const int m : {k, k + 1, 2 * k - 1, 2 * k, 3 * k, 5 * k + 1}) {
      const Schedule schedule = made("zb_v", k, m);
      SimulationInput input = equal_costs(schedule, {2, 2, 2});  // 1 for a stage
      input.holdings.assign(static_cast<size_t>(2 * k), {0.5, 0.5});
      const Simulation result = simulate(schedule, input);
      const double units = std::max(0, 2 * k - 1 - m);
      CAPTURE(fmt::format("K={} M={}", k, m));
      CHECK(result.bubble_rate == doctest::Approx(units / (6 * m + units)).epsilon(1e-12));
      for (const auto& times : result.devices) CHECK(times.peak_held == k);  // equal on all
    }
}

TEST_CASE("zb_auto leaves no more bubble than zb_h1 and zb_h2 in their memory, whatever the costs") {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const base::Philox random(seed, base::Purpose::test);
    const int k = 2 + static_cast<int>(random.below(0, 7));
    const int m = 1 + static_cast<int>(random.below(1, 40));
    auto request = test::request_for(pipeline::find_schedule("zb_auto"), k, m);
    SimulationInput input;
    for (int s = 0; s < k; ++s)
      input.costs.push_back({0.5 + random.uniform(10 + 3 * s), 0.5 + random.uniform(11 + 3 * s), random.uniform(12 + 3 * s)});
    request.costs = input.costs;
    input.link.latency = request.transfer = 0.3 * random.uniform(2);
    request.weight_memory_share = random.uniform(3);
    CAPTURE(fmt::format("seed {} K={} M={}", seed, k, m));
    const auto rate = [&](const char* name, double limit) {
      request.memory_limit = limit;
      return simulate(made(pipeline::find_schedule(name), request, false), input).bubble_rate;
    };
    CHECK(rate("zb_auto", k) <= rate("zb_h1", 0) + 1e-9);
    // The last device holds one activation and what 2 (K - 1) weight gradients need.
    CHECK(rate("zb_auto", 2 * k - 1) <= rate("zb_h2", 0) + 1e-9);
  }
}

TEST_CASE("activations held are the closed forms") {
  const double share = 0.375;
  for (const int k : {1, 2, 4, 7}) {
    const int m = 4 * k;
    const auto peaks = [&](const char* name, double part) {
      const Schedule schedule = made(name, k, m);
      SimulationInput input = equal_costs(schedule, {1, 1, 1, 0});
      input.holdings.assign(static_cast<size_t>(schedule.stages), {part, part * share});
      return simulate(schedule, input).devices;
    };
    for (int i = 1; i <= k; ++i) {
      const auto device = static_cast<size_t>(i - 1);
      CAPTURE(fmt::format("K={} worker {}", k, i));
      CHECK(peaks("gpipe", 1)[device].peak_held == m);
      CHECK(peaks("1f1b", 1)[device].peak_held == k - i + 1);
      CHECK(peaks("zb_h1", 1)[device].peak_held == (k - i + 1) + (i - 1) * share);
      CHECK(peaks("zb_h2", 1)[device].peak_held == (2 * k - 2 * i + 1) + (2 * i - 2) * share);
    }
    const int v = 3;  // as request_for has it
    CHECK(peaks("interleaved", 1.0 / v)[0].peak_held == doctest::Approx(k * (1 + (k - 1.0) / (k * v))));
    // GPipe with recompute: a boundary input each, and one micro-batch whole.
    const Schedule schedule = made("gpipe", k, m, true);
    SimulationInput input = equal_costs(schedule, {1, 1, 1, 1});
    input.holdings.assign(static_cast<size_t>(k), {1, 0, 0.0625});
    for (const auto& times : simulate(schedule, input).devices) CHECK(times.peak_held == m * 0.0625 + (1 - 0.0625));
  }
}

TEST_CASE("random costs, links and places give what repeated correction of all times gives") {
  for (uint64_t seed = 0; seed < 150; ++seed) {
    const base::Philox random(seed, base::Purpose::test);
    uint64_t drawn = 0;
    const auto below = [&](int bound) { return static_cast<int>(random.below(drawn++, static_cast<uint32_t>(bound))); };
    for (const auto& type : pipeline::schedule_types()) {
      const int k = 1 + below(5);
      const int m = type.chunks == 0 ? k * (1 + below(3)) : 1 + below(9);
      const Schedule schedule = made(type, test::request_for(type, k, m, 2 + below(2)), below(2) == 0);
      SimulationInput input;
      for (int s = 0; s < schedule.stages; ++s) {  // whole numbers and halves: sums are exact in any order
        input.costs.push_back({0.5 * below(20), 0.5 * below(20), 0.5 * below(20), 0.5 * below(20)});
        input.forward_bytes.push_back(below(12));
        input.backward_bytes.push_back(below(12));
      }
      input.link = {0.5 * below(6), below(3) == 0 ? 0.0 : 2.0, below(2) == 0};
      const Times wanted = by_iteration(schedule, input);
      CAPTURE(fmt::format("{} K={} M={} seed {}", type.name, k, m, seed));
      size_t tasks = 0;
      std::vector<double> held(static_cast<size_t>(k), 0);
      std::vector<double> busy(static_cast<size_t>(k), 0);
      double last = 0;
      const Simulation result = simulate(schedule, input, [&](const Span& span) {
        const auto& [start, end] = wanted.at({static_cast<int>(span.task.work), span.task.stage, span.task.micro});
        CHECK(span.start == start);
        CHECK(span.end == end);
        CHECK(span.device == schedule.device_of[static_cast<size_t>(span.task.stage)]);
        held[static_cast<size_t>(span.device)] = span.held;
        busy[static_cast<size_t>(span.device)] += span.end - span.start;
        last = std::max(last, span.end);
        ++tasks;
      });
      CHECK(tasks == wanted.size());
      CHECK(result.makespan == last);
      for (size_t device = 0; device < held.size(); ++device) {
        CHECK(held[device] == 0);  // all given back
        CHECK(result.devices[device].busy == busy[device]);
      }
    }
  }
}

TEST_CASE("rows made on the way give the same times as rows made first") {
  for (const auto& type : pipeline::schedule_types()) {
    const auto request = test::request_for(type, 4, 200);
    const Schedule schedule = type.make(request);
    SimulationInput input = equal_costs(schedule, {3, 4, 2, 0});
    input.link.latency = 0.5;
    const Simulation first = simulate(schedule, input);
    const Simulation streamed = simulate_streams(request, type, input);
    CHECK(streamed.makespan == first.makespan);
    CHECK(streamed.bubble_rate == first.bubble_rate);
    CHECK(streamed.devices[2].peak_held == first.devices[2].peak_held);
  }
}

TEST_CASE("a link takes latency and bytes over bandwidth, and queues if it is told to") {
  // Two stages; forwards of 1 s send 6 bytes at 2 bytes/s: the link is slower than the stage.
  const Schedule schedule = made("gpipe", 2, 3);
  SimulationInput input = equal_costs(schedule, {1, 1, 0, 0});
  input.forward_bytes = {6, 0};
  input.link = {0.5, 2, false};
  const auto starts = [&] {
    std::vector<double> all;
    simulate(schedule, input, [&](const Span& span) {
      if (span.task.work == Work::forward && span.task.stage == 1) all.push_back(span.start);
    });
    return all;
  };
  CHECK(starts() == std::vector<double>{4.5, 5.5, 6.5});
  input.link.queues = true;  // 1 + 3, then 3 each; latency does not add up
  CHECK(starts() == std::vector<double>{4.5, 7.5, 10.5});
}

TEST_CASE("work after the last task starts when all are done") {
  const Schedule schedule = made("gpipe", 2, 2);
  SimulationInput input = equal_costs(schedule, {1, 1, 1, 0});
  input.finish = {1, 3};
  const Simulation result = simulate(schedule, input);
  CHECK(result.makespan == 3 * 3 + 3);
  CHECK(result.devices[0].busy == 6 + 1);
  CHECK(result.idle_share(0) == doctest::Approx(1 - 7.0 / 12));
  CHECK(result.bubble_rate == doctest::Approx(1.0 / 3));
}

TEST_CASE("rows that wait for ever, or take messages out of order, are a bug") {
  Schedule schedule{2, 2, 2, {0, 1}, {}};
  schedule.rows = {{{Work::forward, 0}, {Work::backward, 0}, {Work::forward, 1}, {Work::backward, 1}},
                   {{Work::forward, 0, 1}, {Work::forward, 1, 1}, {Work::backward, 0, 1}, {Work::backward, 1, 1}}};
  const SimulationInput input = equal_costs(schedule, {1, 1, 1, 0});
  CHECK_THROWS_WITH_AS(simulate(schedule, input), doctest::Contains("deadlock"), base::BugError);
  schedule = made("gpipe", 2, 2);
  std::swap(schedule.rows[1][0], schedule.rows[1][1]);
  CHECK_THROWS_WITH_AS(simulate(schedule, input), doctest::Contains("micro-batch 0"), base::BugError);
}

TEST_CASE("rows that need hundreds of messages in between are simulated too") {
  // Stage 1 takes nothing before it has done all of another stage's work.
  const int m = 500;
  Schedule schedule{2, 4, m, {0, 1, 1, 0}, {{}, {}}};
  for (int micro = 0; micro < m; ++micro) schedule.rows[0].push_back({Work::forward, micro, 0});
  for (int micro = 0; micro < m; ++micro) schedule.rows[1].push_back({Work::forward, micro, 1});
  for (int micro = 0; micro < m; ++micro) schedule.rows[1].push_back({Work::forward, micro, 2});
  for (int micro = 0; micro < m; ++micro) schedule.rows[0].push_back({Work::forward, micro, 3});
  CHECK(simulate(schedule, equal_costs(schedule, {2, 0, 0, 0})).makespan == 1 + 2 * m + 1);
}

TEST_SUITE("slow") {
  TEST_CASE("a thousand devices with ten thousand micro-batches come out as the closed forms have it") {
    for (const char* name : {"gpipe", "1f1b", "zb_h1", "zb_h2"}) {
      pipeline::ScheduleRequest request;
      request.devices = 1000;
      request.micro_batches = 10000;
      const auto& type = pipeline::find_schedule(name);
      SimulationInput input;
      input.costs.assign(1000, {1, 1, 1, 0});
      const double bubble = type.splits_backward ? (std::string(name) == "zb_h1" ? 999.0 : 0.0) : 3 * 999.0;
      CHECK(simulate_streams(request, type, input).bubble_rate == doctest::Approx(bubble / (30000 + bubble)).epsilon(1e-12));
    }
  }
}
