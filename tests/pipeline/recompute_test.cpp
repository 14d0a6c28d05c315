// What rematerialize: auto keeps, against every choice that there is.
#include "core/pipeline/recompute.h"

#include "core/base/rng.h"
#include "core/pipeline/predict.h"
#include "tests/support/small_run.h"

#include <doctest/doctest.h>

#include <algorithm>

using namespace gpipe;
using pipeline::Rematerialize;

namespace {

/// Seconds of recompute in a micro-batch.
double recompute_seconds(const pipeline::Plan& plan) {
  double sum = 0;
  for (const pipeline::StageCost& cost : pipeline::predict(plan).stages) sum += cost.recompute;
  return sum;
}

}  // namespace

TEST_CASE("of all choices within the limit none saves more than the bound, and auto comes near the best") {
  const auto network = test::network_of(
      "[{conv2d: {out_channels: 3, kernel_size: 3}}, batch_norm, relu, {conv2d: {out_channels: 5, kernel_size: 1}}, gelu, "
      "flatten, {linear: {out_features: 6}}, tanh, {linear: {out_features: 4}}]",
      {7, 6, 3}, 4);
  for (uint64_t seed = 0; seed < 3; ++seed) {
    const base::Philox random(seed, base::Purpose::test);
    std::vector<pipeline::NodeProfile> costs(network.nodes.size());
    for (size_t i = 0; i < costs.size(); ++i) costs[i] = {1.0 + random.below(i, 20), 1, 1};
    pipeline::PipelineOptions options;
    options.micro_batches = 4;
    const auto full = pipeline::make_plan(network, {options, 8, 1, costs});
    options.rematerialize = Rematerialize::none;
    const auto least = static_cast<int64_t>(full->arena_bytes());
    const auto most = static_cast<int64_t>(pipeline::make_plan(network, {options, 8, 1, costs})->arena_bytes());
    options.rematerialize = Rematerialize::automatic;
    for (const int part : {1, 2, 3}) {
      const int64_t limit = least + (most - least) * part / 4;
      options.memory_limit = base::Tree::scalar(std::to_string(limit));
      const auto plan = pipeline::make_plan(network, {options, 8, 1, costs});
      double best = 0;
      const int nodes = network.loss_node() + 1;
      const pipeline::StagePlan& stage = full->stages.front();
      for (int choice = 0; choice < 1 << nodes; ++choice) {
        std::vector<bool> keep;
        for (int node = 0; node < nodes; ++node) keep.push_back((choice >> node & 1) != 0);
        const auto program =
            pipeline::compile_stage({network, 0, nodes, 0, full->edges, stage.operations, 2, full->schedule, keep});
        const size_t bytes = stage.memory.total() - stage.memory.activations - stage.memory.working + program.activation_bytes() +
                             program.working_bytes;
        if (static_cast<int64_t>(bytes) > limit) continue;
        double again = 0;
        for (const auto& instruction : program.recomputed.recompute)
          again += costs[static_cast<size_t>(instruction.node)].forward;
        best = std::max(best, recompute_seconds(*full) - again);
      }
      CAPTURE(seed);
      CAPTURE(part);
      CHECK(plan->recompute_saved == doctest::Approx(recompute_seconds(*full) - recompute_seconds(*plan)));
      CHECK(best <= plan->recompute_bound * (1 + 1e-9));
      CHECK(plan->recompute_saved >= 0.8 * best);
    }
  }
}
