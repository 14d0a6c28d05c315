#include "core/pipeline/plan.h"

#include <algorithm>
#include <sched.h>

namespace gpipe::pipeline {
namespace {

size_t packed_bytes(const graph::Operation& operation) {
  return align_up(operation.packed_weight_bytes()) + align_up(operation.packed_gradient_bytes());
}

void plan_operations(const graph::Network& network, const device::Batches& batches, StagePlan& stage) {
  for (int index = stage.first_node; index < stage.last_node; ++index) {
    const graph::Node& node = network.nodes[static_cast<size_t>(index)];
    std::vector<Shape> shapes;
    const auto wants = std::make_unique<bool[]>(node.inputs.size());
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      const graph::Value& value = network.values[static_cast<size_t>(node.inputs[k])];
      shapes.push_back(value.shape);
      wants[k] = value.wants_gradient;
    }
    const Shape& output = network.values[static_cast<size_t>(node.output)].shape;
    try {
      stage.operations.push_back(
          node.layer->plan({*stage.backend, batches, shapes, output, std::span<const bool>(wants.get(), node.inputs.size())}));
    } catch (base::Error& error) {
      error.add_context(fmt::format("{}{}node {}", node.where.text(), node.where.text().empty() ? "" : ": ", node.name));
      throw;
    }
  }
}

/// All but edges, activations and working memory, which the program says.
StageMemory fixed_memory(const graph::Network& network, const StagePlan& stage, int optimizer_slots) {
  StageMemory memory;
  for (int index = stage.first_node; index < stage.last_node; ++index) {
    const graph::Node& node = network.nodes[static_cast<size_t>(index)];
    const graph::Operation& operation = *stage.operations[static_cast<size_t>(index - stage.first_node)];
    for (const graph::ParameterSpec& parameter : node.parameters) {
      const size_t bytes = align_up(static_cast<size_t>(parameter.shape.elements()) * sizeof(float));
      memory.parameters += bytes;
      memory.gradients += bytes;
      memory.optimizer += bytes * static_cast<size_t>(optimizer_slots);
    }
    for (const graph::BufferSpec& buffer : node.buffers)
      memory.buffers += align_up(static_cast<size_t>(buffer.shape.elements()) * sizeof(float));
    memory.buffers += align_up(operation.batch_state_bytes());
    memory.packed += packed_bytes(operation);
  }
  return memory;
}

}  // namespace

MicroBatches::MicroBatches(int64_t mini, int64_t count) : mini_batch(mini) {
  if (count < 1 || count > mini)
    throw base::ConfigError("pipeline.micro_batches: {} micro-batches of a mini-batch of {} samples; use 1 to {}", count, mini,
                            mini);
  int64_t first = 0;
  for (int64_t i = 0; i < count; ++i) {
    sizes.push_back(mini / count + (i < mini % count ? 1 : 0));
    first_sample.push_back(first);
    first += sizes.back();
  }
}

device::Batches MicroBatches::distinct() const {
  device::Batches out{sizes.front()};
  if (sizes.back() != sizes.front()) out.push_back(sizes.back());
  return out;
}

size_t Plan::arena_bytes() const {
  size_t sum = 0;
  for (const StagePlan& stage : stages) sum += stage.memory.total();
  return sum;
}

size_t Plan::bytes_sent(const EdgePlan& edge) const {
  const graph::Value& value = network.values[static_cast<size_t>(edge.value)];
  return static_cast<size_t>(value.shape.elements() * micro_batches.mini_batch) * tensor::size_of(value.dtype);
}

std::vector<int> cores_of_stage(int stage, int stages, int threads) {
  cpu_set_t allowed;
  std::vector<int> all;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0)
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &allowed)) all.push_back(core);
  if (static_cast<int>(all.size()) < stages * threads) return {};
  return {all.begin() + stage * threads, all.begin() + (stage + 1) * threads};
}

std::unique_ptr<Plan> make_plan(const graph::Network& network, const PlanRequest& request) {
  const PipelineOptions& options = request.options;
  MicroBatches micro_batches(request.batch_size, options.micro_batches);
  base::Problems problems;
  const auto costs = request.costs.empty() ? estimated_costs(network) : request.costs;
  Boundaries boundaries = make_boundaries(network, static_cast<int>(options.partitions), options.balance, costs, problems);
  problems.throw_if_any();
  const int stages = static_cast<int>(options.partitions);
  const bool recompute = options.rematerialize == Rematerialize::full;
  Schedule schedule = find_schedule(options.schedule).make({.devices = stages, .micro_batches = micro_batches.count()});
  if (recompute) schedule = with_recompute(std::move(schedule), [](int, int) { return true; });
  check_schedule(schedule);
  const device::Batches batches = micro_batches.distinct();
  auto edges = make_edges(network, boundaries, schedule, batches.front(), options.rematerialize);
  auto plan = std::make_unique<Plan>(Plan{network,
                                          options,
                                          std::move(micro_batches),
                                          std::move(boundaries),
                                          std::move(schedule),
                                          std::move(edges),
                                          {},
                                          request.optimizer_slots});
  for (int index = 0; index < stages; ++index) {
    StagePlan& stage = plan->stages.emplace_back();
    stage.first_node = plan->boundaries[static_cast<size_t>(index)];
    stage.last_node = plan->boundaries[static_cast<size_t>(index) + 1];
    const int threads = static_cast<int>(options.threads);
    stage.backend = device::open_backend(
        options.device, {threads, options.bind_threads ? cores_of_stage(index, stages, threads) : std::vector<int>{}});
    plan_operations(network, batches, stage);
    stage.program = compile_stage({network, stage.first_node, stage.last_node, index, plan->edges, stage.operations,
                                   batches.front(), options.rematerialize, plan->schedule});
    stage.memory = fixed_memory(network, stage, request.optimizer_slots);
    const StageProgram& program = stage.program;
    stage.memory.activations = program.kept_bytes * static_cast<size_t>(program.kept_slots) +
                               program.recomputed_bytes * static_cast<size_t>(program.recomputed_slots);
    stage.memory.working = program.working_bytes;
    const size_t fixed = stage.memory.total() - stage.memory.activations - stage.memory.working;
    for (EdgePlan& edge : plan->edges) {
      if (edge.to != index) continue;
      edge.offset = fixed + stage.memory.edges;
      stage.memory.edges += edge.slot_bytes * static_cast<size_t>(edge.slots);
    }
  }
  return plan;
}

}  // namespace gpipe::pipeline
