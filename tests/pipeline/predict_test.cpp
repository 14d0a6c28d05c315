// Predictions from made-up costs: closed forms where the stages are equal, and the instructions of the plan where not.
#include "core/pipeline/predict.h"

#include "tests/support/small_run.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace gpipe;
using pipeline::Rematerialize;

namespace {

/// Equal layers: 8 of them, so that 2 or 4 stages are equal too (the loss costs nothing here).
const char* const k_equal_layers = R"([{repeat: {times: 8, body: [{linear: {out_features: 6}}]}}])";

std::unique_ptr<pipeline::Plan> plan_of(const graph::Network& network, int partitions, int micro_batches,
                                        const std::string& schedule, Rematerialize policy) {
  pipeline::PipelineOptions options;
  options.partitions = partitions;
  options.micro_batches = micro_batches;
  options.schedule = schedule;
  options.rematerialize = policy;
  options.bind_threads = false;
  std::vector<pipeline::NodeProfile> costs(network.nodes.size(), {1, 2, 3, 0.5});
  costs.back() = {};
  return pipeline::make_plan(network, {options, 16, 0, costs});
}

}  // namespace

TEST_CASE("equal stages take (M+K-1)(F+B), idle for (K-1)/(M+K-1) of it, and the update comes on top") {
  const auto network = test::network_of(k_equal_layers, {6}, 6);
  for (const int partitions : {1, 2, 4})
    for (const int micro_batches : {1, 4, 16}) {
      CAPTURE(fmt::format("K={} M={}", partitions, micro_batches));
      const auto plan = plan_of(network, partitions, micro_batches, "gpipe", Rematerialize::none);
      const auto prediction = pipeline::predict(*plan);
      // Nobody asks for the gradient of the samples: the first layer has no backward_input, and stage 0 is cheaper by it.
      const double layers = 8.0 / partitions;
      const double work = (micro_batches + partitions - 1) * layers * (1 + 2 + 3) - micro_batches * 2 * (partitions == 1);
      if (partitions == 1) {
        CHECK(prediction.step_seconds() == doctest::Approx(work + 8 * 0.5));
        CHECK(prediction.bubble() == doctest::Approx(0));
      } else {
        CHECK(prediction.step_seconds() <= work + layers * 0.5 + 1e-9);
        CHECK(prediction.step_seconds() > work + layers * 0.5 - micro_batches * 2 - 1e-9);
      }
    }
}

TEST_CASE("a recompute costs what its instructions cost: the last layer of a stage is not run again") {
  const auto network = test::network_of(k_equal_layers, {6}, 6);
  const auto plan = plan_of(network, 2, 4, "gpipe", Rematerialize::full);
  const auto prediction = pipeline::predict(*plan);
  CHECK(prediction.stages[0].forward == doctest::Approx(4));
  CHECK(prediction.stages[0].recompute == doctest::Approx(3));  // linear reads its input in backward, never its output
  CHECK(prediction.stages[0].backward_input == doctest::Approx(3 * 2));
  CHECK(prediction.stages[1].backward_input == doctest::Approx(4 * 2));
  CHECK(prediction.stages[1].backward_weight == doctest::Approx(4 * 3));
  CHECK(prediction.stage_seconds(1, *plan) == doctest::Approx(4 * (4 + 4 * 2 + 4 * 3 + 4)));  // the loss reads its input
  const auto kept = pipeline::predict(*plan_of(network, 2, 4, "gpipe", Rematerialize::keep_first));
  CHECK(kept.stage_seconds(0, *plan_of(network, 2, 4, "gpipe", Rematerialize::keep_first)) ==
        doctest::Approx(prediction.stage_seconds(0, *plan) - 3));
}

TEST_CASE("a schedule that splits backward has the same work and less idle time than gpipe") {
  const auto network = test::network_of(k_equal_layers, {6}, 6);
  const auto gpipe_plan = plan_of(network, 4, 8, "gpipe", Rematerialize::none);
  const auto split_plan = plan_of(network, 4, 8, "zb_h1", Rematerialize::none);
  const auto whole = pipeline::predict(*gpipe_plan);
  const auto split = pipeline::predict(*split_plan);
  for (int stage = 0; stage < 4; ++stage)
    CHECK(whole.stage_seconds(stage, *gpipe_plan) == doctest::Approx(split.stage_seconds(stage, *split_plan)));
  CHECK(split.bubble() < whole.bubble());
}
