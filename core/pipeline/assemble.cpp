// From a cut to a plan: operations, edges, programs, memory.
#include "core/pipeline/plan_parts.h"
#include "core/pipeline/recompute.h"
#include "core/pipeline/staging.h"

#include <algorithm>

namespace gpipe::pipeline {
namespace {

/// All but edges, activations and working memory, which the program says.
StageMemory fixed_memory(const graph::Network& network, const StagePlan& stage, int optimizer_slots) {
  StageMemory memory;
  for (int index = stage.first_node; index < stage.last_node; ++index) {
    const graph::Node& node = network.nodes[static_cast<size_t>(index)];
    const graph::Operation& operation = *stage.operations[static_cast<size_t>(index - stage.first_node)];
    for (size_t i = 0; i < node.parameters.size(); ++i) {
      const size_t bytes = align_up(static_cast<size_t>(node.parameters[i].shape.elements()) * sizeof(float));
      const graph::Tie* tie = network.tie_of(index, static_cast<int>(i));
      memory.gradients += bytes;
      if (tie == nullptr || tie->owner_node < stage.first_node) memory.parameters += bytes;  // else it is in this stage
      if (tie == nullptr) memory.optimizer += bytes * static_cast<size_t>(optimizer_slots);
    }
    for (const graph::BufferSpec& buffer : node.buffers)
      memory.buffers += align_up(static_cast<size_t>(buffer.shape.elements()) * sizeof(float));
    memory.buffers += align_up(operation.batch_state_bytes());
    memory.packed += packed_bytes(operation);
  }
  return memory;
}

/// What schedules that fill gaps look at; recompute is taken as a whole forward, before it is known what is kept.
std::vector<StageCost> stage_costs(const Plan& plan, const std::vector<int>& device_of) {
  std::vector<StageCost> costs;
  for (size_t stage = 0; stage + 1 < plan.boundaries.size(); ++stage) {
    StageCost cost{0, 0, 0, 0};
    const double speed = plan.devices.speed(device_of[stage]);
    for (int node = plan.boundaries[stage]; node < plan.boundaries[stage + 1]; ++node) {
      const NodeProfile& of = plan.costs[static_cast<size_t>(node)];
      cost.forward += of.forward / speed;
      cost.backward_input += of.backward_input / speed;
      cost.backward_weight += of.backward_weight / speed;
    }
    if (plan.options.rematerialize != Rematerialize::none) cost.recompute = cost.forward;
    costs.push_back(cost);
  }
  return costs;
}

/// Slots behind what is fixed: of what arrives, and of what is written here and then sent. Those of narrower buckets are the
/// same.
void place_edges(Plan& plan) {
  const auto stage_of = [&](int index) -> StagePlan& { return plan.stages[static_cast<size_t>(index)]; };
  for (StagePlan& stage : plan.stages) stage.memory.edges = 0;
  for (EdgePlan& edge : plan.edges) {
    const auto place = [&](int index) {
      StageMemory& memory = stage_of(index).memory;
      const size_t at = memory.fixed() + memory.edges;
      memory.edges += edge.slot_bytes * static_cast<size_t>(edge.slots);
      return at;
    };
    edge.sent = !plan.reaches(edge.from, edge.to);
    edge.offset = place(edge.to);
    if (edge.sent) edge.sender_offset = place(edge.from);
  }
  for (const auto& narrower : plan.narrower)
    for (size_t i = 0; i < plan.edges.size(); ++i) {
      narrower->edges[i].sent = plan.edges[i].sent;
      narrower->edges[i].offset = plan.edges[i].offset;
      narrower->edges[i].sender_offset = plan.edges[i].sender_offset;
    }
}

void make_stages(Plan& plan, const device::Batches& batches, const Operations* planned) {
  const PipelineOptions& options = plan.options;
  const int threads = static_cast<int>(options.threads);
  const int devices = plan.schedule.devices;
  std::vector<std::shared_ptr<device::Backend>> backends;
  std::shared_ptr<device::Backend> any;  // of this process: the devices of others are planned with it
  const auto open = [&](int device) {
    return std::shared_ptr<device::Backend>(
        device::open_backend(plan.devices.names[static_cast<size_t>(device)],
                             {threads, options.bind_threads ? cores_of_device(options, device) : std::vector<int>{},
                              options.precision, options.algorithms, options.transfer_timeout}));
  };
  for (int device = 0; device < devices; ++device) {
    backends.push_back(plan.is_here(device) ? open(device) : nullptr);
    if (!any) any = backends.back();
  }
  for (auto& backend : backends)
    if (!backend) backend = any;
  for (int index = 0; index < plan.schedule.stages; ++index) {
    StagePlan& stage = plan.stages.emplace_back();
    stage.first_node = plan.boundaries[static_cast<size_t>(index)];
    stage.last_node = plan.boundaries[static_cast<size_t>(index) + 1];
    stage.device = plan.schedule.device_of[static_cast<size_t>(index)];
    stage.backend = backends[static_cast<size_t>(stage.device)];
    if (planned != nullptr)
      stage.operations.assign(planned->begin() + stage.first_node, planned->begin() + stage.last_node);
    else
      stage.operations = plan_operations(plan.network, *stage.backend, batches, stage.first_node, stage.last_node);
    stage.memory = fixed_memory(plan.network, stage, plan.optimizer_slots);
  }
  place_edges(plan);
  for (StagePlan& stage : plan.stages)
    stage.memory.staged = (stage.backend->is_host() ? 0 : staged_bytes(plan, stage)) + tied_copy_bytes(plan, stage);
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
    return KeptBytes{memory.total() - memory.activations - memory.working + program.activation_bytes(), program.working_bytes,
                     program.evaluate_bytes};
  };
  KeepChoice choice = choose_kept(plan, plan.costs, bytes);
  Kept kept;
  double all = 0;  // no choice saves more than there is
  for (int stage = 0; stage < plan.schedule.stages; ++stage) {
    const StageProgram program = program_of(plan, stage, choice.keep[static_cast<size_t>(stage)]);
    const StageProgram full = program_of(plan, stage, {});
    const auto seconds = [&](const StageProgram& of) {
      double sum = 0;
      for (const Instruction& instruction : of.recomputed.recompute)
        sum += plan.costs[static_cast<size_t>(instruction.node)].forward;
      return sum;
    };
    all += seconds(full);
    plan.recompute_saved += seconds(full) - seconds(program);
    kept.recomputes.push_back(!program.recomputed.recompute.empty());
  }
  plan.recompute_bound = std::max(std::min(choice.bound, all), plan.recompute_saved);
  kept.keep = std::move(choice.keep);
  return kept;
}

}  // namespace

size_t packed_bytes(const graph::Operation& operation) {
  return align_up(operation.packed_weight_bytes()) + align_up(operation.packed_gradient_bytes());
}

StageProgram program_of(const Plan& plan, int index, const std::vector<bool>& keep) {
  const StagePlan& stage = plan.stages[static_cast<size_t>(index)];
  return compile_stage({plan.network, stage.first_node, stage.last_node, index, plan.edges, stage.operations,
                        plan.micro_batches.sizes.front(), plan.schedule, keep});
}

size_t first_stage_of(const Plan& plan, int device) {
  const auto& of = plan.schedule.device_of;
  return static_cast<size_t>(std::find(of.begin(), of.end(), device) - of.begin());
}

Operations plan_operations(const graph::Network& network, device::Backend& backend, const device::Batches& batches, int first,
                           int last, const graph::Network* widest) {
  Operations operations;
  for (int index = first; index < last; ++index) {
    const graph::Node& node = network.nodes[static_cast<size_t>(index)];
    std::vector<Shape> shapes, widest_shapes;
    const auto wants = std::make_unique<bool[]>(node.inputs.size());
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      const graph::Value& value = network.values[static_cast<size_t>(node.inputs[k])];
      shapes.push_back(value.shape);
      wants[k] = value.wants_gradient;
      if (widest != nullptr) widest_shapes.push_back(widest->values[static_cast<size_t>(node.inputs[k])].shape);
    }
    const Shape& output = network.values[static_cast<size_t>(node.output)].shape;
    try {
      const std::span<const bool> gradients(wants.get(), node.inputs.size());
      operations.push_back(node.layer->plan({backend, batches, shapes, output, gradients, widest_shapes}));
    } catch (base::Error& error) {
      error.add_context(fmt::format("{}{}node {}", node.where.text(), node.where.text().empty() ? "" : ": ", node.name));
      throw;
    }
  }
  return operations;
}

std::unique_ptr<Plan> assemble(const Outline& outline, Boundaries boundaries, const Operations* planned) {
  const PipelineOptions& options = outline.request.options;
  auto plan = std::make_unique<Plan>(Plan{outline.network,
                                          options,
                                          outline.micro_batches,
                                          std::move(boundaries),
                                          {},
                                          {},
                                          {},
                                          outline.request.optimizer_slots,
                                          outline.costs,
                                          outline.devices});
  ScheduleRequest rows = outline.rows;
  rows.costs = stage_costs(*plan, outline.equal.device_of);
  const Schedule schedule = outline.type.make(rows);
  plan->schedule = with_recompute(schedule, [&](int, int micro) { return recomputes(options.rematerialize, micro); });
  check_schedule(plan->schedule);
  const device::Batches batches = plan->micro_batches.distinct();
  plan->edges = make_edges(outline.network, plan->boundaries, plan->schedule, batches.front());
  widen_edges(plan->schedule, plan->edges);
  make_stages(*plan, batches, planned);
  Kept kept{std::vector<std::vector<bool>>(static_cast<size_t>(plan->schedule.stages)), {}};
  if (options.rematerialize == Rematerialize::automatic) {
    kept = keep_what_fits(*plan);
    plan->schedule = with_recompute(schedule, [&](int stage, int) { return kept.recomputes[static_cast<size_t>(stage)]; });
  }
  for (int index = 0; index < plan->schedule.stages; ++index) {
    StagePlan& stage = plan->stages[static_cast<size_t>(index)];
    stage.program = program_of(*plan, index, kept.keep[static_cast<size_t>(index)]);
    stage.memory.activations = stage.program.activation_bytes();
    StagePlan& first = plan->stages[first_stage_of(*plan, stage.device)];
    first.memory.working = std::max(first.memory.working, stage.program.working_bytes);
  }
  for (const NarrowerBucket& bucket : outline.request.narrower) add_bucket(*plan, bucket, kept.keep);
  if (!plan->narrower.empty()) place_edges(*plan);  // there may be more packed copies in front of them now
  return plan;
}

}  // namespace gpipe::pipeline
