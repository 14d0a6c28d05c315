// Plans of narrower buckets: the same nodes, stages and tasks for shorter samples, on the weights and in the arenas of the
// widest.
#include "core/pipeline/estimate.h"
#include "core/pipeline/plan_parts.h"

#include <algorithm>

namespace gpipe::pipeline {
namespace {

/// As many slots in the same order; only their bytes are fewer.
std::vector<EdgePlan> narrower_edges(const Plan& widest, const graph::Network& network) {
  std::vector<EdgePlan> edges = make_edges(network, widest.boundaries, widest.schedule, widest.micro_batches.distinct().front());
  GP_CHECK_EQ(edges.size(), widest.edges.size());
  for (size_t i = 0; i < edges.size(); ++i) {
    const EdgePlan& wide = widest.edges[i];
    GP_CHECK(edges[i].value == wide.value && edges[i].gradient == wide.gradient && edges[i].slot_bytes <= wide.slot_bytes);
    edges[i].slots = wide.slots;
  }
  return edges;
}

/// Copies of weights in another layout than the widest's are memory of their own.
size_t own_packed_bytes(const StagePlan& stage, const StagePlan& wide) {
  size_t sum = 0;
  for (size_t i = 0; i < stage.operations.size(); ++i) {
    const graph::Operation &operation = *stage.operations[i], &of_widest = *wide.operations[i];
    GP_CHECK_EQ(operation.batch_state_bytes(), of_widest.batch_state_bytes());
    if (operation.packs_as_widest())
      GP_CHECK_EQ(packed_bytes(operation), packed_bytes(of_widest));
    else
      sum += packed_bytes(operation);
  }
  return sum;
}

}  // namespace

void add_bucket(Plan& widest, const NarrowerBucket& bucket, const std::vector<std::vector<bool>>& keep) {
  const graph::Network& network = *bucket.network;
  const device::Batches batches = widest.micro_batches.distinct();
  auto plan = std::make_unique<Plan>(Plan{network,
                                          widest.options,
                                          widest.micro_batches,
                                          widest.boundaries,
                                          widest.schedule,
                                          narrower_edges(widest, network),
                                          {},
                                          widest.optimizer_slots,
                                          bucket.costs,
                                          widest.devices});
  if (plan->costs.empty()) plan->costs = estimated_profile(network, {}, batches.front(), widest.optimizer_slots);
  for (int index = 0; index < widest.schedule.stages; ++index) {
    StagePlan& wide = widest.stages[static_cast<size_t>(index)];
    StagePlan& stage = plan->stages.emplace_back();
    stage.first_node = wide.first_node;
    stage.last_node = wide.last_node;
    stage.device = wide.device;
    stage.backend = wide.backend;
    stage.operations = plan_operations(network, *stage.backend, batches, stage.first_node, stage.last_node, &widest.network);
    stage.program = program_of(*plan, index, keep[static_cast<size_t>(index)]);
    // Less than the widest needs, but for the odd case of smaller pieces that lie less well together.
    wide.memory.packed += own_packed_bytes(stage, wide);
    wide.memory.activations = std::max(wide.memory.activations, stage.program.activation_bytes());
    size_t& working = widest.stages[first_stage_of(widest, wide.device)].memory.working;
    working = std::max(working, stage.program.working_bytes);
  }
  widest.narrower.push_back(std::move(plan));
}

}  // namespace gpipe::pipeline
