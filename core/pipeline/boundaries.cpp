#include "core/pipeline/boundaries.h"

#include "core/base/choice.h"
#include "core/base/fields.h"
#include "core/pipeline/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

namespace gpipe::pipeline {
namespace {

std::optional<Boundaries> from_counts(const base::Tree& balance, int nodes, int partitions, base::Problems& problems) {
  base::FieldInfo info;
  info.low = 1;
  info.high = nodes;
  const auto counts = base::detail::read_integers(balance, "pipeline.balance", info, problems);
  if (!counts) return std::nullopt;
  const int64_t sum = std::accumulate(counts->begin(), counts->end(), int64_t{0});
  if (static_cast<int>(counts->size()) != partitions || sum != nodes) {
    problems.add(
        balance.where(), "pipeline.balance",
        fmt::format("{} counts with the sum {}; wanted are {} (pipeline.partitions) with the sum {} (layers of the network)",
                    counts->size(), sum, partitions, nodes));
    return std::nullopt;
  }
  Boundaries boundaries{0};
  for (const int64_t count : *counts) boundaries.push_back(boundaries.back() + static_cast<int>(count));
  return boundaries;
}

/// Last node of the entry `name`: of the node itself, or of the composite whose nodes carry the name as a prefix.
int last_node_of(const graph::Network& network, const std::string& name) {
  int last = -1;
  for (size_t i = 0; i < network.nodes.size(); ++i) {
    const std::string& full = network.nodes[i].name;
    if (full == name || full.starts_with(name + ".")) last = static_cast<int>(i);
  }
  return last;
}

std::optional<Boundaries> from_names(const base::Tree& names, const graph::Network& network, int nodes, int partitions,
                                     base::Problems& problems) {
  const std::string path = "pipeline.balance.cut_after";
  const auto read = base::detail::read_texts(names, path, problems);
  if (!read) return std::nullopt;
  if (static_cast<int>(read->size()) != partitions - 1) {
    problems.add(
        names.where(), path,
        fmt::format("{} names cut into {} stages, but pipeline.partitions is {}", read->size(), read->size() + 1, partitions));
    return std::nullopt;
  }
  Boundaries boundaries{0};
  std::vector<std::string> known;
  for (const graph::Node& node : network.nodes) known.push_back(node.name);
  for (const std::string& name : *read) {
    const int last = last_node_of(network, name);
    if (last < 0 || last >= nodes - 1) {
      const std::string near = base::nearest(name, known);
      problems.add(
          names.where(), path,
          last < 0 ? fmt::format("no layer is named '{}'{}", name, near.empty() ? "" : fmt::format("; did you mean '{}'?", near))
                   : fmt::format("nothing comes after '{}': a stage would be empty", name));
      return std::nullopt;
    }
    if (last + 1 <= boundaries.back()) {
      problems.add(names.where(), path,
                   fmt::format("'{}' does not come after the cut before it; name the cuts in the order of the network", name));
      return std::nullopt;
    }
    boundaries.push_back(last + 1);
  }
  boundaries.push_back(nodes);
  return boundaries;
}

int64_t bytes_of(const graph::Value& value, int64_t samples) {
  return static_cast<int64_t>(
      align_up(static_cast<size_t>(value.shape.with_batch(samples).elements()) * tensor::size_of(value.dtype)));
}

/// [i]: bytes of the values that one of the nodes 0 to i makes and a later one uses.
std::vector<int64_t> crossing_bytes(const graph::Network& network, int64_t samples) {
  std::vector<int64_t> change(network.nodes.size() + 1, 0);
  for (const graph::Value& value : network.values) {
    if (value.producer < 0 || value.consumers.empty()) continue;  // every stage reads the mini-batch itself
    change[static_cast<size_t>(value.producer)] += bytes_of(value, samples);
    change[static_cast<size_t>(value.consumers.back())] -= bytes_of(value, samples);
  }
  std::partial_sum(change.begin(), change.end(), change.begin());
  return change;
}

/// Where a stage must end for a node to be run again in its recompute.
class RecomputeRule {
 public:
  static constexpr int k_never = std::numeric_limits<int>::max();

  explicit RecomputeRule(const CutRequest& request) : request_(request) {
    const int nodes = request.network.loss_node() + 1;
    from_.assign(static_cast<size_t>(nodes), k_never);
    for (int node = nodes - 2; node >= 0; --node) from_[static_cast<size_t>(node)] = first_end(node);
  }
  /// In stages that end (exclusively) at this node or later.
  int from(int node) const { return from_[static_cast<size_t>(node)]; }
  /// Bytes that backward finds of the node: its saved ones, and its output if it or a user reads that.
  int64_t bytes(int node) const {
    const graph::Value& value = output(node);
    bool read = participates(node) && operation(node).needs().output;
    for (const int consumer : value.consumers) read = read || reads_inputs(consumer);
    const int64_t samples = request_.largest_batch;
    return (read ? bytes_of(value, samples) : 0) +
           (participates(node) ? static_cast<int64_t>(align_up(operation(node).saved_bytes(samples))) : 0);
  }

 private:
  const graph::Operation& operation(int node) const { return *request_.operations[static_cast<size_t>(node)]; }
  const graph::Value& output(int node) const {
    const graph::Network& network = request_.network;
    return network.values[static_cast<size_t>(network.nodes[static_cast<size_t>(node)].output)];
  }
  bool participates(int node) const { return output(node).wants_gradient; }
  bool reads_inputs(int node) const { return participates(node) && operation(node).needs().inputs; }

  int first_end(int node) const {
    if (participates(node) && (operation(node).needs().output || operation(node).saved_bytes(request_.largest_batch) > 0))
      return 0;
    int first = k_never;
    for (const int consumer : output(node).consumers)
      first = std::min(first, reads_inputs(consumer) ? consumer + 1 : from_[static_cast<size_t>(consumer)]);
    return first;
  }

  const CutRequest& request_;
  std::vector<int> from_;
};

/// Bytes of a stage; the working memory is taken as one micro-batch's activations (if they are made again), the two largest
/// outputs, and the largest workspace.
MemoryModel memory_model(const CutRequest& request, const RecomputeRule& rule, int nodes) {
  MemoryModel memory;
  const bool recompute = request.options.rematerialize != Rematerialize::none;  // auto keeps what is left
  for (int index = 0; index <= nodes; ++index) {
    const graph::Node& node = request.network.nodes[static_cast<size_t>(index)];
    const graph::Operation& operation = *request.operations[static_cast<size_t>(index)];
    int64_t fixed = recompute ? rule.bytes(index) : 0;
    for (const graph::ParameterSpec& parameter : node.parameters)
      fixed += parameter.shape.elements() * 4 * (2 + (parameter.tied_to.empty() ? request.optimizer_slots : 0));
    for (const graph::BufferSpec& buffer : node.buffers) fixed += buffer.shape.elements() * 4;
    for (const size_t bytes : {operation.batch_state_bytes(), operation.packed_weight_bytes(), operation.packed_gradient_bytes()})
      fixed += static_cast<int64_t>(align_up(bytes));
    memory.fixed.push_back(fixed);
    memory.kept.push_back(recompute ? 0 : rule.bytes(index));
    const graph::Value& output = request.network.values[static_cast<size_t>(node.output)];
    memory.workspace.push_back(2 * bytes_of(output, request.largest_batch) + static_cast<int64_t>(operation.workspace_bytes()));
  }
  for (const int live : request.live) {
    memory.live.push_back(live);
    memory.slots_in.push_back(std::min(live + 1, request.micro_batches));
    memory.slots_out.push_back(std::min(2, request.micro_batches));
  }
  // The loss goes with the last layer.
  const auto loss = static_cast<size_t>(nodes);
  memory.fixed[loss - 1] += memory.fixed[loss];
  memory.kept[loss - 1] += memory.kept[loss];
  memory.workspace[loss - 1] = std::max(memory.workspace[loss - 1], memory.workspace[loss]);
  for (auto* list : {&memory.fixed, &memory.kept, &memory.workspace}) list->pop_back();
  return memory;
}

/// Takes off what is never run again, and notes what stages that end early enough are spared.
void spare_recompute(const CutRequest& request, const RecomputeRule& rule, PartitionProblem& problem) {
  if (request.options.rematerialize == Rematerialize::none) return;
  const int nodes = static_cast<int>(problem.costs.size());
  problem.spared.resize(static_cast<size_t>(nodes));
  for (int node = 0; node < nodes; ++node) {
    const auto at = static_cast<size_t>(node);
    const double total = request.profile[at].total(request.options.rematerialize);
    const double again = total > 0 ? request.costs[at] * request.profile[at].forward / total : 0;
    if (rule.from(node) == RecomputeRule::k_never) {
      problem.costs[at] -= again;
      continue;
    }
    // The last stage ends behind the loss.
    for (int end = node + 1; end < rule.from(node) && end < nodes; ++end)
      problem.spared[static_cast<size_t>(end) - 1].push_back({node, again});
  }
}

Boundaries by_objective(const CutRequest& request) {
  const int nodes = request.network.loss_node();
  PartitionProblem problem;
  problem.costs.assign(request.costs.begin(), request.costs.begin() + nodes);
  problem.costs.back() += request.costs[static_cast<size_t>(nodes)];
  problem.cut_bytes = crossing_bytes(request.network, request.largest_batch);
  problem.cut_bytes.resize(static_cast<size_t>(nodes));
  problem.stages = request.stages;
  for (int stage = 0; stage < request.stages; ++stage) {
    const auto device = static_cast<size_t>(request.device_of[static_cast<size_t>(stage)]);
    const auto chunks =
        std::count(request.device_of.begin(), request.device_of.end(), request.device_of[static_cast<size_t>(stage)]);
    if (!request.devices.speeds.empty()) problem.speeds.push_back(request.devices.speeds[device]);
    const double limit = static_cast<double>(request.devices.memory_limits[device]) * request.limit_scale;
    problem.memory_limits.push_back(static_cast<int64_t>(std::min(limit, 9e18)) / chunks);
  }
  const RecomputeRule rule(request);
  problem.memory = memory_model(request, rule, nodes);
  spare_recompute(request, rule, problem);
  const auto found = partition(problem, request.options.objective);
  if (const auto* split = std::get_if<Partition>(&found)) return split->boundaries;
  return std::get<Misfit>(found).boundaries;  // the plan, which knows the bytes, says whether it fits after all
}

}  // namespace

void check_stages(const graph::Network& network, int stages, int chunks) {
  const int nodes = network.loss_node();
  if (stages < 1 || stages > nodes)
    throw base::ConfigError("pipeline.partitions: {}, but the network has {} layers; use 1 to {}",
                            chunks > 1 ? fmt::format("{} partitions of {} stages each", stages / chunks, chunks)
                                       : fmt::format("{} partitions", stages),
                            nodes, nodes / chunks);
}

Boundaries choose_boundaries(const CutRequest& request, base::Problems& problems) {
  const graph::Network& network = request.network;
  const base::Tree& balance = request.options.balance;
  const int nodes = network.loss_node();
  std::optional<Boundaries> boundaries;
  const base::Tree* cut_after = balance.is_map() ? balance.find("cut_after") : nullptr;
  if (balance.is_null() || (balance.is_scalar() && balance.text() == "auto")) {
    boundaries = by_objective(request);
  } else if (balance.is_list()) {
    boundaries = from_counts(balance, nodes, request.stages, problems);
  } else if (cut_after != nullptr && balance.members().size() == 1) {
    boundaries = from_names(*cut_after, network, nodes, request.stages, problems);
  } else {
    problems.add(balance.where(), "pipeline.balance",
                 fmt::format("wanted: auto, a list of counts, or {{cut_after: [names]}}; found {}", balance.kind_words()));
  }
  if (!boundaries) return {};
  boundaries->back() = nodes + 1;
  return *boundaries;
}

}  // namespace gpipe::pipeline
