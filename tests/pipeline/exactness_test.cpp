// The promise: for one M, the same bits for every K, every schedule, with and without recompute.
#include "tests/support/small_run.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>

using namespace gpipe;

namespace {

pipeline::PipelineOptions options(int64_t partitions, int64_t micro_batches, bool recompute,
                                  const std::string& schedule = "gpipe") {
  pipeline::PipelineOptions o;
  o.partitions = partitions;
  o.micro_batches = micro_batches;
  o.rematerialize = recompute ? pipeline::Rematerialize::full : pipeline::Rematerialize::none;
  o.schedule = schedule;
  o.bind_threads = false;
  return o;
}

const test::SmallRun k_run{test::k_residual_network, {7, 6, 3}};

}  // namespace

TEST_CASE("losses, weights and optimizer state are the same bits for every K, schedule and recompute policy") {
  for (const int64_t micro_batches : {1, 2, 5, 8}) {
    const test::RunBits unpiped = test::run_steps(k_run, options(1, micro_batches, false), 30);
    REQUIRE(std::isfinite(unpiped.losses.back()));
    CHECK(unpiped.losses.back() != unpiped.losses.front());
    for (const auto& schedule : pipeline::schedule_types())
      for (const int64_t partitions : {1, 2, 3, 4, 8})
        for (const bool recompute : {true, false}) {
          CAPTURE(fmt::format("{} K={} M={} recompute={}", schedule.name, partitions, micro_batches, recompute));
          CHECK(test::run_steps(k_run, options(partitions, micro_batches, recompute, schedule.name), 30) == unpiped);
        }
  }
}

TEST_CASE("every place to cut gives the same bits, up to one node a stage") {
  const test::RunBits unpiped = test::run_steps(k_run, options(1, 3, true), 3);
  const auto network = test::network_of(k_run.network, k_run.input, k_run.classes);
  const int nodes = network.loss_node();
  for (int cut = 1; cut < nodes; ++cut)
    for (const bool recompute : {true, false}) {
      CAPTURE(cut);
      auto o = options(2, 3, recompute);
      o.balance = base::Tree::list({base::Tree::scalar(std::to_string(cut)), base::Tree::scalar(std::to_string(nodes - cut))});
      CHECK(test::run_steps(k_run, o, 3) == unpiped);
    }
  CHECK(test::run_steps(k_run, options(nodes, 3, true), 3) == unpiped);
  CHECK(test::run_steps(k_run, options(nodes, 3, false), 3) == unpiped);
}

TEST_CASE("other numbers of micro-batches agree within rounding where no layer looks at the batch") {
  const test::SmallRun run{
      R"([{conv2d: {out_channels: 4, kernel_size: 3}}, gelu, {dropout: {p: 0.4}}, flatten, {linear: {out_features: 4}}])",
      {6, 5, 2}};
  const test::RunBits one = test::run_steps(run, options(1, 1, true), 10);
  for (const int64_t micro_batches : {2, 3, 8}) {
    const test::RunBits many = test::run_steps(run, options(2, micro_batches, true), 10);
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
  const test::RunBits unpiped = test::run_steps(run, options(1, 2, true), 5);
  for (int partitions = 2; partitions <= 7; ++partitions)
    for (const bool recompute : {true, false}) {
      CAPTURE(partitions);
      CHECK(test::run_steps(run, options(partitions, 2, recompute), 5) == unpiped);
    }
}
