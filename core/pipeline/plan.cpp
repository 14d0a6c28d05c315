#include "core/pipeline/plan.h"

#include "core/pipeline/recompute.h"

#include <algorithm>
#include <limits>
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

namespace {

double total(const NodeProfile& cost, Rematerialize policy) {
  return cost.backward() + (policy == Rematerialize::none ? 1 : 2) * cost.forward;
}

ScheduleRequest schedule_request(const Plan& plan, int chunks) {
  const PipelineOptions& options = plan.options;
  ScheduleRequest request{.devices = static_cast<int>(options.partitions),
                          .micro_batches = plan.micro_batches.count(),
                          .chunks = chunks,
                          .memory_limit = options.activation_limit};
  for (size_t stage = 0; stage + 1 < plan.boundaries.size(); ++stage) {
    StageCost cost{0, 0, 0, 0};
    for (int node = plan.boundaries[stage]; node < plan.boundaries[stage + 1]; ++node) {
      const NodeProfile& of = plan.costs[static_cast<size_t>(node)];
      cost.forward += of.forward;
      cost.backward_input += of.backward_input;
      cost.backward_weight += of.backward_weight;
    }
    if (options.rematerialize != Rematerialize::none) cost.recompute = cost.forward;
    request.costs.push_back(cost);
  }
  return request;
}

void make_stages(Plan& plan, const device::Batches& batches) {
  const PipelineOptions& options = plan.options;
  const int threads = static_cast<int>(options.threads);
  const int devices = plan.schedule.devices;
  std::vector<std::shared_ptr<device::Backend>> backends;
  for (int device = 0; device < devices; ++device)
    backends.push_back(device::open_backend(
        options.device, {threads, options.bind_threads ? cores_of_stage(device, devices, threads) : std::vector<int>{}}));
  for (int index = 0; index < plan.schedule.stages; ++index) {
    StagePlan& stage = plan.stages.emplace_back();
    stage.first_node = plan.boundaries[static_cast<size_t>(index)];
    stage.last_node = plan.boundaries[static_cast<size_t>(index) + 1];
    stage.device = plan.schedule.device_of[static_cast<size_t>(index)];
    stage.backend = backends[static_cast<size_t>(stage.device)];
    plan_operations(plan.network, batches, stage);
    stage.memory = fixed_memory(plan.network, stage, plan.optimizer_slots);
    const size_t fixed = stage.memory.total();
    for (EdgePlan& edge : plan.edges) {
      if (edge.to != index) continue;
      edge.offset = fixed + stage.memory.edges;
      stage.memory.edges += edge.slot_bytes * static_cast<size_t>(edge.slots);
    }
  }
}

StageProgram program_of(const Plan& plan, int index, const std::vector<bool>& keep) {
  const StagePlan& stage = plan.stages[static_cast<size_t>(index)];
  return compile_stage({plan.network, stage.first_node, stage.last_node, index, plan.edges, stage.operations,
                        plan.micro_batches.sizes.front(), plan.schedule, keep});
}

int64_t memory_limit(const Plan& plan) {
  if (plan.options.memory_limit > 0) return plan.options.memory_limit;
  const int64_t device = plan.stages.front().backend->info().memory_bytes;
  if (device == 0) return std::numeric_limits<int64_t>::max();
  return device / plan.schedule.devices;  // the devices of a pipeline on CPUs share the machine's memory
}

/// `rematerialize: auto`: what each stage keeps, and whether it recomputes at all then.
struct Kept {
  std::vector<std::vector<bool>> keep;
  std::vector<bool> recomputes;
};

Kept keep_what_fits(Plan& plan) {
  const auto bytes = [&](int stage, const std::vector<bool>& keep) {
    const StageProgram program = program_of(plan, stage, keep);
    const StageMemory& memory = plan.stages[static_cast<size_t>(stage)].memory;
    return memory.total() - memory.activations - memory.working + program.activation_bytes() + program.working_bytes;
  };
  KeepChoice choice = choose_kept(plan, plan.costs, memory_limit(plan), bytes);
  Kept kept;
  for (int stage = 0; stage < plan.schedule.stages; ++stage) {
    const StageProgram program = program_of(plan, stage, choice.keep[static_cast<size_t>(stage)]);
    const StageProgram full = program_of(plan, stage, {});
    const auto seconds = [&](const StageProgram& of) {
      double sum = 0;
      for (const Instruction& instruction : of.recomputed.recompute)
        sum += plan.costs[static_cast<size_t>(instruction.node)].forward;
      return sum;
    };
    plan.recompute_saved += seconds(full) - seconds(program);
    kept.recomputes.push_back(!program.recomputed.recompute.empty());
  }
  plan.recompute_bound = std::max(choice.bound, plan.recompute_saved);
  kept.keep = std::move(choice.keep);
  return kept;
}

}  // namespace

std::unique_ptr<Plan> make_plan(const graph::Network& network, const PlanRequest& request) {
  const PipelineOptions& options = request.options;
  MicroBatches micro_batches(request.batch_size, options.micro_batches);
  const ScheduleType& type = find_schedule(options.schedule);
  const int chunks = type.chunks > 0 ? type.chunks : options.chunks > 0 ? static_cast<int>(options.chunks) : 2;
  const int stages = static_cast<int>(options.partitions) * chunks;
  const auto costs = request.costs.empty() ? estimated_costs(network) : request.costs;
  std::vector<double> weights;
  for (const NodeProfile& cost : costs) weights.push_back(total(cost, options.rematerialize));
  base::Problems problems;
  Boundaries boundaries = make_boundaries(network, stages, options.balance, weights, problems);
  problems.throw_if_any();
  auto plan = std::make_unique<Plan>(
      Plan{network, options, std::move(micro_batches), std::move(boundaries), {}, {}, {}, request.optimizer_slots, costs});
  ScheduleRequest rows = schedule_request(*plan, chunks);
  if (type.chunks > 0 && options.chunks > 0) rows.chunks = static_cast<int>(options.chunks);  // so that it is refused
  check_request(type, rows);
  const Schedule schedule = type.make(rows);
  plan->schedule = with_recompute(schedule, [&](int, int micro) { return recomputes(options.rematerialize, micro); });
  check_schedule(plan->schedule);
  const device::Batches batches = plan->micro_batches.distinct();
  plan->edges = make_edges(network, plan->boundaries, plan->schedule, batches.front());
  widen_edges(plan->schedule, plan->edges);
  make_stages(*plan, batches);
  Kept kept{std::vector<std::vector<bool>>(static_cast<size_t>(stages)), {}};
  if (options.rematerialize == Rematerialize::automatic) {
    kept = keep_what_fits(*plan);
    plan->schedule = with_recompute(schedule, [&](int stage, int) { return kept.recomputes[static_cast<size_t>(stage)]; });
  }
  for (int index = 0; index < stages; ++index) {
    StagePlan& stage = plan->stages[static_cast<size_t>(index)];
    stage.program = program_of(*plan, index, kept.keep[static_cast<size_t>(index)]);
    stage.memory.activations = stage.program.activation_bytes();
    stage.memory.working = stage.program.working_bytes;
  }
  return plan;
}

}  // namespace gpipe::pipeline
