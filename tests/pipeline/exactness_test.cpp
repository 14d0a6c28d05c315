// The promise: for one M, the same bits for every K, every schedule, with and without recompute.
#include "tests/pipeline/exactness.h"

#include "tests/support/small_run.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

using namespace gpipe;

namespace {

using pipeline::Rematerialize;
using test::options;

const test::SmallRun k_run{test::k_residual_network, {7, 6, 3}};

int stages_a_device(const pipeline::ScheduleType& type) { return type.chunks > 0 ? type.chunks : 2; }

/// Interleaved rows want M to be a multiple of K.
bool refused(const pipeline::ScheduleType& type, int partitions, int micro_batches) {
  try {
    pipeline::check_request(type, {.devices = partitions, .micro_batches = micro_batches, .chunks = stages_a_device(type)});
  } catch (const base::ConfigError&) { return true; }
  return false;
}

size_t largest_stage(const pipeline::PipelineOptions& o) {
  const auto network = test::network_of(k_run.network, k_run.input, k_run.classes);
  const auto plan = pipeline::make_plan(network, {o, k_run.batch_size, 1, {}});
  size_t most = 0;
  for (const auto& stage : plan->stages) most = std::max(most, stage.memory.total());
  return most;
}

/// The same bits for every schedule, K and policy, with each of these M, after so many steps.
void check_every_schedule(const test::SmallRun& run, const std::vector<int>& all_micro_batches, int steps) {
  const int nodes = test::network_of(run).loss_node();
  for (const int micro_batches : all_micro_batches) {
    const test::RunBits unpiped = test::run_steps(run, options(1, micro_batches, Rematerialize::none), steps);
    REQUIRE(std::isfinite(unpiped.losses.back()));
    CHECK(unpiped.losses.back() != unpiped.losses.front());
    for (const auto& schedule : pipeline::schedule_types())
      for (const int partitions : {1, 2, 3, 4, 8}) {
        if (partitions * stages_a_device(schedule) > nodes || refused(schedule, partitions, micro_batches)) continue;
        for (const Rematerialize policy : {Rematerialize::full, Rematerialize::none, Rematerialize::keep_first}) {
          CAPTURE(fmt::format("{} K={} M={} policy={}", schedule.name, partitions, micro_batches, static_cast<int>(policy)));
          CHECK(test::run_steps(run, options(partitions, micro_batches, policy, schedule.name), steps) == unpiped);
        }
      }
  }
}

}  // namespace

TEST_CASE("losses, weights and optimizer state are the same bits for every K, schedule and recompute policy") {
  check_every_schedule(k_run, {1, 2, 5, 8}, 30);
}

TEST_CASE("whatever a memory limit lets rematerialize: auto keep, the bits are the same and the limit holds") {
  const test::RunBits unpiped = test::run_steps(k_run, options(1, 5, Rematerialize::none), 5);
  const auto network = test::network_of(k_run.network, k_run.input, k_run.classes);
  for (const std::string schedule : {"gpipe", "zb_h1"})
    for (const int64_t partitions : {1, 3}) {
      const size_t least = largest_stage(options(partitions, 5, Rematerialize::full, schedule));
      const size_t most = largest_stage(options(partitions, 5, Rematerialize::none, schedule));
      REQUIRE(least < most);
      size_t before = 0;
      for (int part = 0; part <= 4; ++part) {
        auto o = options(partitions, 5, Rematerialize::automatic, schedule);
        const size_t limit = least + (most - least) * static_cast<size_t>(part) / 4;
        o.memory_limit = base::Tree::scalar(std::to_string(limit));
        CAPTURE(fmt::format("{} K={} limit={}", schedule, partitions, limit));
        const size_t used = largest_stage(o);
        CHECK(used <= limit);
        CHECK(used >= before);
        before = used;
        const auto plan = pipeline::make_plan(network, {o, k_run.batch_size, 1, {}});
        CHECK(plan->recompute_saved <= plan->recompute_bound);
        if (part == 4) CHECK(plan->recompute_saved == doctest::Approx(plan->recompute_bound));
        CHECK(test::run_steps(k_run, o, 5) == unpiped);
      }
      CHECK(before > least);
    }
}

TEST_CASE("every place to cut gives the same bits, up to one node a stage") {
  const test::RunBits unpiped = test::run_steps(k_run, options(1, 3, Rematerialize::full), 3);
  const auto network = test::network_of(k_run.network, k_run.input, k_run.classes);
  const int nodes = network.loss_node();
  for (int cut = 1; cut < nodes; ++cut)
    for (const Rematerialize policy : {Rematerialize::full, Rematerialize::none}) {
      CAPTURE(cut);
      auto o = options(2, 3, policy);
      o.balance = base::Tree::list({base::Tree::scalar(std::to_string(cut)), base::Tree::scalar(std::to_string(nodes - cut))});
      CHECK(test::run_steps(k_run, o, 3) == unpiped);
    }
  CHECK(test::run_steps(k_run, options(nodes, 3, Rematerialize::full), 3) == unpiped);
  CHECK(test::run_steps(k_run, options(nodes, 3, Rematerialize::none), 3) == unpiped);
}

TEST_CASE("other numbers of micro-batches agree within rounding where no layer looks at the batch") {
  const test::SmallRun run{
      R"([{conv2d: {out_channels: 4, kernel_size: 3}}, gelu, {dropout: {p: 0.4}}, flatten, {linear: {out_features: 4}}])",
      {6, 5, 2}};
  const test::RunBits one = test::run_steps(run, options(1, 1, Rematerialize::full), 10);
  for (const int64_t micro_batches : {2, 3, 8}) {
    const test::RunBits many = test::run_steps(run, options(2, micro_batches, Rematerialize::full), 10);
    for (size_t i = 0; i < one.losses.size(); ++i) CHECK(many.losses[i] == doctest::Approx(one.losses[i]).epsilon(1e-5));
  }
}

TEST_CASE("a value used in later stages is handed straight to each, and its gradient is summed in the uncut order") {
  const test::SmallRun run{R"(
- linear: {out_features: 6}
  name: a
- tanh: {}
  name: b
- linear: {out_features: 6}
  name: c
- add:
  inputs: [c, a]
  name: d
- linear: {out_features: 6}
  name: e
- add:
  inputs: [e, a, b]
- linear: {out_features: 4}
)",
                           {5}};
  const test::RunBits unpiped = test::run_steps(run, options(1, 4, Rematerialize::full), 5);
  for (const auto& schedule : pipeline::schedule_types())
    for (int partitions = 1; partitions * stages_a_device(schedule) <= 7; ++partitions)
      for (const Rematerialize policy : {Rematerialize::full, Rematerialize::none, Rematerialize::keep_first}) {
        if (refused(schedule, partitions, 4)) continue;
        CAPTURE(fmt::format("{} K={} policy={}", schedule.name, partitions, static_cast<int>(policy)));
        CHECK(test::run_steps(run, options(partitions, 4, policy, schedule.name), 5) == unpiped);
      }
}

TEST_CASE("norms of single samples, whose backward comes in two halves, give the same bits on every schedule") {
  const test::SmallRun run{
      "[{conv2d: {out_channels: 6, kernel_size: 3}}, {group_norm: {num_groups: 3}}, silu, {instance_norm: {affine: true}}, "
      "{conv2d: {out_channels: 4, kernel_size: 1}}, layer_norm, relu, flatten, {linear: {out_features: 9}}, rms_norm, "
      "{linear: {out_features: 4}}]",
      {6, 5, 3}};
  const test::RunBits unpiped = test::run_steps(run, options(1, 4, Rematerialize::none), 10);
  REQUIRE(std::isfinite(unpiped.losses.back()));
  for (const auto& schedule : pipeline::schedule_types())
    for (const int partitions : {1, 2, 4})
      for (const Rematerialize policy : {Rematerialize::full, Rematerialize::none}) {
        if (partitions * stages_a_device(schedule) > 11 || refused(schedule, partitions, 4)) continue;
        CAPTURE(fmt::format("{} K={} policy={}", schedule.name, partitions, static_cast<int>(policy)));
        CHECK(test::run_steps(run, options(partitions, 4, policy, schedule.name), 10) == unpiped);
      }
}

TEST_CASE("a network of tokens, with masked attention and a target at each position, gives the same bits on every schedule") {
  check_every_schedule({.network = test::k_token_network, .input = {11}, .classes = 9, .tokens = true}, {1, 4, 5}, 8);
}

TEST_CASE("a network of tokens gives the same bits wherever it is cut") {
  const test::SmallRun run{.network = test::k_token_network, .input = {11}, .classes = 9, .tokens = true};
  const test::RunBits unpiped = test::run_steps(run, options(1, 3, Rematerialize::full), 3);
  const int nodes = test::network_of(run).loss_node();
  for (int cut = 1; cut < nodes; ++cut)
    for (const Rematerialize policy : {Rematerialize::full, Rematerialize::none}) {
      CAPTURE(cut);
      auto o = options(2, 3, policy);
      o.balance = base::Tree::list({base::Tree::scalar(std::to_string(cut)), base::Tree::scalar(std::to_string(nodes - cut))});
      CHECK(test::run_steps(run, o, 3) == unpiped);
    }
  CHECK(test::run_steps(run, options(nodes, 3, Rematerialize::full), 3) == unpiped);
}

TEST_CASE("with factors of fewer bits the bits are the same too, whatever the cut and the schedule") {
  const test::RunBits wide = test::run_steps(k_run, options(1, 4, Rematerialize::none), 5);
  for (const device::Precision precision : {device::Precision::bf16, device::Precision::tf32, device::Precision::f16}) {
    const auto narrow = [&](pipeline::PipelineOptions o) {
      o.precision = precision;
      return o;
    };
    try {
      const test::RunBits unpiped = test::run_steps(k_run, narrow(options(1, 4, Rematerialize::none)), 5);
      CHECK(unpiped.losses != wide.losses);
      for (const std::string schedule : {"gpipe", "1f1b", "zb_h1"})
        for (const int64_t partitions : {2, 4}) {
          CAPTURE(fmt::format("{} {} K={}", device::name_of(precision), schedule, partitions));
          CHECK(test::run_steps(k_run, narrow(options(partitions, 4, Rematerialize::full, schedule)), 5) == unpiped);
        }
    } catch (const base::ConfigError& error) {
      REQUIRE(precision == device::Precision::bf16);
      MESSAGE("skipped: " << error.what());
    }
  }
}
