#include "core/pipeline/partition.h"

#include "core/base/choice.h"
#include "core/base/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

namespace gpipe::pipeline {
namespace {

// A machine does about this many operations while it moves a byte to or from memory (one core: 200 GFLOP/s, 10 GB/s).
constexpr double k_flops_per_byte = 20.0;

/// Least possible sum of squares with no stage dearer than `bound`; boundaries by walking back.
Boundaries least_squares_under(const std::vector<double>& prefix, int partitions, double bound) {
  const int n = static_cast<int>(prefix.size()) - 1;
  const double infinity = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> best(static_cast<size_t>(partitions) + 1,
                                        std::vector<double>(static_cast<size_t>(n) + 1, infinity));
  std::vector<std::vector<int>> from(best.size(), std::vector<int>(best[0].size(), -1));
  best[0][0] = 0;
  for (int k = 1; k <= partitions; ++k) {
    for (int end = k; end <= n; ++end) {
      for (int begin = end - 1; begin >= k - 1; --begin) {
        const double cost = prefix[static_cast<size_t>(end)] - prefix[static_cast<size_t>(begin)];
        if (cost > bound) break;
        const double sum = best[static_cast<size_t>(k) - 1][static_cast<size_t>(begin)] + cost * cost;
        if (sum >= best[static_cast<size_t>(k)][static_cast<size_t>(end)]) continue;
        best[static_cast<size_t>(k)][static_cast<size_t>(end)] = sum;
        from[static_cast<size_t>(k)][static_cast<size_t>(end)] = begin;
      }
    }
  }
  Boundaries boundaries(static_cast<size_t>(partitions) + 1, n);
  for (int k = partitions; k >= 1; --k)
    boundaries[static_cast<size_t>(k) - 1] =
        from[static_cast<size_t>(k)][static_cast<size_t>(boundaries[static_cast<size_t>(k)])];
  return boundaries;
}

/// Smallest possible cost of the dearest of K stages.
double least_bottleneck(const std::vector<double>& prefix, int partitions) {
  const size_t n = prefix.size() - 1;
  std::vector<double> best(n + 1, std::numeric_limits<double>::infinity());
  best[0] = 0;
  for (int k = 1; k <= partitions; ++k) {
    std::vector<double> next(n + 1, std::numeric_limits<double>::infinity());
    for (size_t end = static_cast<size_t>(k); end <= n; ++end)
      for (size_t begin = end; begin-- > static_cast<size_t>(k) - 1;) {
        const double cost = prefix[end] - prefix[begin];
        next[end] = std::min(next[end], std::max(best[begin], cost));
        if (cost >= next[end]) break;  // longer last stages only get dearer
      }
    best = std::move(next);
  }
  return best[n];
}

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

}  // namespace

Boundaries split_by_cost(const std::vector<double>& costs, int partitions) {
  GP_CHECK(partitions >= 1 && static_cast<size_t>(partitions) <= costs.size());
  std::vector<double> prefix(costs.size() + 1, 0.0);
  std::partial_sum(costs.begin(), costs.end(), prefix.begin() + 1);
  const double bound = least_bottleneck(prefix, partitions);
  return least_squares_under(prefix, partitions, bound);
}

std::vector<NodeProfile> estimated_costs(const graph::Network& network) {
  constexpr double flops_per_second = 1e11;
  std::vector<NodeProfile> costs;
  for (const graph::Node& node : network.nodes) {
    int64_t elements = network.values[static_cast<size_t>(node.output)].shape.elements();
    for (const int input : node.inputs) elements += network.values[static_cast<size_t>(input)].shape.elements();
    // Each of the three touches every tensor once.
    const double bytes = k_flops_per_byte * 4.0 * static_cast<double>(elements);
    const auto seconds = [&](int64_t flops) { return (static_cast<double>(flops) + bytes) / flops_per_second; };
    costs.push_back({seconds(node.cost.forward_flops), seconds(node.cost.backward_input_flops),
                     node.parameters.empty() ? 0 : seconds(node.cost.backward_weight_flops)});
  }
  return costs;
}

Boundaries make_boundaries(const graph::Network& network, int partitions, const base::Tree& balance,
                           const std::vector<double>& costs, base::Problems& problems) {
  const int nodes = network.loss_node();
  if (partitions < 1 || partitions > nodes) {
    problems.add(balance.where(), "pipeline.partitions",
                 fmt::format("{} partitions, but the network has {} layers; use 1 to {}", partitions, nodes, nodes));
    return {};
  }
  std::optional<Boundaries> boundaries;
  const base::Tree* cut_after = balance.is_map() ? balance.find("cut_after") : nullptr;
  if (balance.is_null() || (balance.is_scalar() && balance.text() == "auto")) {
    std::vector<double> body(costs.begin(), costs.begin() + nodes);
    body.back() += costs[static_cast<size_t>(nodes)];  // the loss goes with the last layer
    boundaries = split_by_cost(body, partitions);
  } else if (balance.is_list()) {
    boundaries = from_counts(balance, nodes, partitions, problems);
  } else if (cut_after != nullptr && balance.members().size() == 1) {
    boundaries = from_names(*cut_after, network, nodes, partitions, problems);
  } else {
    problems.add(balance.where(), "pipeline.balance",
                 fmt::format("wanted: auto, a list of counts, or {{cut_after: [names]}}; found {}", balance.kind_words()));
  }
  if (!boundaries) return {};
  boundaries->back() = nodes + 1;
  return *boundaries;
}

}  // namespace gpipe::pipeline
