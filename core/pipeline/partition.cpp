#include "core/pipeline/partition.h"

#include "core/base/error.h"
#include "core/pipeline/partition_search.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace gpipe::pipeline {
namespace {

void check_problem(const PartitionProblem& problem) {
  const size_t nodes = problem.costs.size();
  if (problem.stages < 1 || static_cast<size_t>(problem.stages) > nodes)
    throw base::ConfigError("{} partitions of {} layers: use 1 to {}, so that each has one", problem.stages, nodes, nodes);
  const auto check_costs = [&](const std::vector<double>& costs, const char* what) {
    for (size_t i = 0; i < costs.size(); ++i)
      if (!std::isfinite(costs[i]) || costs[i] < 0)
        throw base::ConfigError("the {} of layer {} is {}: wanted a number of 0 or more", what, i, costs[i]);
  };
  check_costs(problem.costs, "cost");
  check_costs(problem.cut_costs, "cost of the cut behind it");
  if (!problem.speeds.empty() && problem.speeds.size() != static_cast<size_t>(problem.stages))
    throw base::ConfigError("{} speeds for {} stages: give one each", problem.speeds.size(), problem.stages);
  for (const double speed : problem.speeds)
    if (!std::isfinite(speed) || speed <= 0) throw base::ConfigError("a speed of {}: wanted a number above 0", speed);
}

/// Lingvo's rule. Sums are those of whole ticks, so a share on the border between two stages is no matter of rounding.
Boundaries cumulative(const TickProblem& ticks) {
  const int stages = ticks.stages();
  const int64_t total = ticks.prefix().back();
  if (total == 0) throw base::ConfigError("objective cumulative: the costs are all 0, so no layer has a share of them");
  Boundaries boundaries{0};
  for (int node = 0; node < ticks.nodes(); ++node) {
    const int64_t with_this = ticks.prefix()[static_cast<size_t>(node) + 1];
    const int stage = static_cast<int>(std::min<int64_t>(with_this * stages / total, stages - 1));
    while (static_cast<int>(boundaries.size()) <= stage) boundaries.push_back(node);
  }
  boundaries.resize(static_cast<size_t>(stages) + 1, ticks.nodes());
  for (int stage = 0; stage < stages; ++stage) {
    const auto at = static_cast<size_t>(stage);
    if (boundaries[at] == boundaries[at + 1])
      throw base::ConfigError(
          "objective cumulative leaves stage {} of {} without a layer: a layer has more than a stage's share of the cost; use "
          "fewer partitions, or objective bottleneck",
          stage, stages);
  }
  return boundaries;
}

Misfit misfit_of(const PartitionProblem& problem, const Boundaries& boundaries) {
  Misfit worst;
  for (int stage = 0; stage < problem.stages; ++stage) {
    const auto at = static_cast<size_t>(stage);
    const int64_t limit = problem.memory_limits.empty() ? 0 : problem.memory_limits[at];
    if (limit == 0) continue;
    const int64_t bytes = stage_bytes(problem, stage, boundaries[at], boundaries[at + 1]);
    if (worst.limit == 0 || bytes - limit > worst.excess())
      worst = {stage, boundaries[at], boundaries[at + 1], bytes, limit, boundaries};
  }
  return worst;
}

int64_t at_or(const std::vector<int64_t>& list, int index, int64_t otherwise) {
  return list.empty() ? otherwise : list[static_cast<size_t>(index)];
}

}  // namespace

int64_t stage_bytes(const PartitionProblem& problem, int stage, int first, int last) {
  const MemoryModel& memory = problem.memory;
  const auto cut = [&](int boundary) {
    return boundary == 0 || boundary == static_cast<int>(problem.costs.size()) ? 0 : at_or(problem.cut_bytes, boundary - 1, 0);
  };
  int64_t bytes = at_or(memory.slots_in, stage, 0) * cut(first) + at_or(memory.slots_out, stage, 0) * cut(last);
  int64_t workspace = 0;
  for (int node = first; node < last; ++node) {
    bytes += at_or(memory.fixed, node, 0) + at_or(memory.live, stage, 1) * at_or(memory.kept, node, 0);
    workspace = std::max(workspace, at_or(memory.workspace, node, 0));
  }
  return bytes + workspace;
}

Partition measure(const PartitionProblem& problem, Boundaries boundaries) {
  Partition out;
  const int nodes = static_cast<int>(problem.costs.size());
  const auto cut = [&](int boundary) {
    return boundary == 0 || boundary == nodes || problem.cut_costs.empty() ? 0
                                                                           : problem.cut_costs[static_cast<size_t>(boundary) - 1];
  };
  for (int stage = 0; stage < problem.stages; ++stage) {
    const int first = boundaries[static_cast<size_t>(stage)];
    const int last = boundaries[static_cast<size_t>(stage) + 1];
    double cost = std::accumulate(problem.costs.begin() + first, problem.costs.begin() + last, 0.0);
    if (!problem.spared.empty())
      for (const Spared& spared : problem.spared[static_cast<size_t>(last) - 1])
        if (spared.node >= first) cost -= spared.cost;
    const double speed = problem.speeds.empty() ? 1 : problem.speeds[static_cast<size_t>(stage)];
    out.loads.push_back(cost / speed + cut(first) + cut(last));
    if (last < nodes) out.bytes_cut += at_or(problem.cut_bytes, last - 1, 0);
  }
  out.bottleneck = *std::max_element(out.loads.begin(), out.loads.end());
  const double mean = std::accumulate(out.loads.begin(), out.loads.end(), 0.0) / problem.stages;
  for (const double load : out.loads) out.variance += (load - mean) * (load - mean) / problem.stages;
  out.boundaries = std::move(boundaries);
  return out;
}

std::variant<Partition, Misfit> partition(const PartitionProblem& problem, Objective objective) {
  check_problem(problem);
  const TickProblem ticks(problem);
  if (objective == Objective::cumulative) {
    Boundaries boundaries = cumulative(ticks);
    const Misfit worst = misfit_of(problem, boundaries);
    if (worst.limit > 0 && worst.excess() > 0) return worst;
    return measure(problem, std::move(boundaries));
  }
  const int64_t bottleneck = least_bottleneck(ticks);
  if (bottleneck == k_unbounded) return misfit_of(problem, least_excess(ticks));
  return measure(problem, least_variance(ticks, objective == Objective::bottleneck ? bottleneck : k_unbounded));
}

}  // namespace gpipe::pipeline
