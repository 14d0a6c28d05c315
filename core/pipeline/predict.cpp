#include "core/pipeline/predict.h"

#include <algorithm>

namespace gpipe::pipeline {
namespace {

using Kind = Instruction::Kind;

/// Sums of gradients and copies are in the costs of the nodes they belong to.
double seconds(const std::vector<Instruction>& list, const std::vector<NodeProfile>& costs, Kind kind) {
  double sum = 0;
  for (const Instruction& instruction : list) {
    if (instruction.kind != kind) continue;
    const NodeProfile& cost = costs[static_cast<size_t>(instruction.node)];
    sum += kind == Kind::forward ? cost.forward : kind == Kind::backward_input ? cost.backward_input : cost.backward_weight;
  }
  return sum;
}

StageCost cost_of(const StageProgram& program, const std::vector<NodeProfile>& costs, double speed) {
  const bool whole = !program.whole.forward.empty();
  const TaskProgram& tasks = whole ? program.whole : program.recomputed;
  StageCost cost;
  cost.forward = seconds(tasks.forward, costs, Kind::forward);
  cost.backward_input = seconds(tasks.backward, costs, Kind::backward_input);
  cost.backward_weight =
      seconds(tasks.backward, costs, Kind::backward_weight) + seconds(tasks.backward_weight, costs, Kind::backward_weight);
  cost.recompute = seconds(program.recomputed.recompute, costs, Kind::forward);
  for (double* part : {&cost.forward, &cost.recompute, &cost.backward_input, &cost.backward_weight}) *part /= speed;
  return cost;
}

/// Once a mini-batch.
double upkeep(const NodeProfile& cost) { return cost.update + cost.pack; }

StageHolding holding_of(const StageProgram& program) {
  const TaskProgram& tasks = program.whole.forward.empty() ? program.recomputed : program.whole;
  const size_t for_weight = tasks.kept_for_weight.bytes;
  return {static_cast<double>(tasks.kept.bytes + for_weight), static_cast<double>(for_weight + tasks.deferred.bytes)};
}

}  // namespace

double Prediction::bubble() const {
  double busy = 0;
  for (const DeviceTimes& device : simulation.devices) busy += device.busy;
  const double all = simulation.makespan * static_cast<double>(simulation.devices.size());
  return all > 0 ? 1.0 - busy / all : 0.0;
}

double Prediction::stage_seconds(int stage, const Plan& plan) const {
  const StageCost& cost = stages[static_cast<size_t>(stage)];
  const int micro_batches = plan.micro_batches.count();
  int recomputed = 0;
  for (int micro = 0; micro < micro_batches; ++micro)
    if (plan.schedule.recomputed(stage, micro)) ++recomputed;
  return micro_batches * (cost.forward + cost.backward_input + cost.backward_weight) + recomputed * cost.recompute;
}

Prediction predict(const Plan& plan, const SpanSink& sink) {
  Prediction prediction;
  SimulationInput input;
  prediction.update.assign(static_cast<size_t>(plan.schedule.devices), 0.0);
  for (const StagePlan& stage : plan.stages) {
    const double speed = plan.devices.speed(stage.device);
    prediction.stages.push_back(cost_of(stage.program, plan.costs, speed));
    input.holdings.push_back(holding_of(stage.program));
    for (int node = stage.first_node; node < stage.last_node; ++node)
      prediction.update[static_cast<size_t>(stage.device)] += upkeep(plan.costs[static_cast<size_t>(node)]) / speed;
  }
  input.costs = prediction.stages;
  input.finish = prediction.update;
  prediction.simulation = simulate(plan.schedule, input, sink);
  return prediction;
}

}  // namespace gpipe::pipeline
