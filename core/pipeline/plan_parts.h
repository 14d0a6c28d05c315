// How make_plan goes about it: outline, cut, assemble. For plan.cpp, cut.cpp and assemble.cpp alone.
#pragma once

#include "core/pipeline/plan.h"

#include <memory>
#include <vector>

namespace gpipe::pipeline {

using Operations = std::vector<std::shared_ptr<graph::Operation>>;

/// What is known of a plan before the network is cut.
struct Outline {
  const graph::Network& network;
  const PlanRequest& request;
  const ScheduleType& type;
  ScheduleRequest rows;
  MicroBatches micro_batches;
  std::vector<NodeProfile> costs;
  DeviceList devices;
  Schedule equal;  // with stages of equal cost: where they lie, and how many micro-batches each holds
};

/// The operations of nodes [first, last), planned on the backend. `widest`: of a narrower bucket, else null.
Operations plan_operations(const graph::Network& network, device::Backend& backend, const device::Batches& batches, int first,
                           int last, const graph::Network* widest = nullptr);
/// What the node has packed of its weights, and their gradients.
size_t packed_bytes(const graph::Operation& operation);
StageProgram program_of(const Plan& plan, int stage, const std::vector<bool>& keep);
/// Index of the device's first stage, which has the working memory of all its stages.
size_t first_stage_of(const Plan& plan, int device);
/// Adds a bucket to a plan that has all but the places of its edges; `keep`: of each stage, as in CompileInput.
void add_bucket(Plan& widest, const NarrowerBucket& bucket, const std::vector<std::vector<bool>>& keep);

/// Where to cut: by the objective, without limits if that fits; else by limits from loose to tight, as the estimate of
/// memory may err either way, and from the best of these on by the bytes themselves; or of few cuts simply the best. When
/// nothing fits, what comes nearest. `operations`: of all nodes, to look with.
Boundaries cut(const Outline& outline, const Operations& operations);

/// The plan with the network cut here. `planned`: operations to look with, or null for those to run.
std::unique_ptr<Plan> assemble(const Outline& outline, Boundaries boundaries, const Operations* planned);

}  // namespace gpipe::pipeline
