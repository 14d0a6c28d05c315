// Where to cut the list of nodes into K stages of consecutive nodes.
#pragma once

#include "core/base/problems.h"
#include "core/graph/network.h"
#include "core/pipeline/cost.h"

#include <cstdint>
#include <string>
#include <vector>

namespace gpipe::pipeline {

/// First node of each stage, and past the last one: K + 1 ascending node indices, front() = 0, back() = all nodes.
using Boundaries = std::vector<int>;

/// The split whose dearest stage is cheapest, exactly (dynamic programming, O(K n^2)); ties go to the least sum of squares.
/// Every stage gets at least one node. `costs` are those of the nodes in order, any unit; K <= costs.size().
Boundaries split_by_cost(const std::vector<double>& costs, int partitions);

/// What a node costs without a measurement: its operations, and its bytes at the price of `flops_per_byte` operations.
std::vector<NodeProfile> estimated_costs(const graph::Network& network);

/// `balance` as configured: null or `auto` (by `costs`), a list of node counts, or {cut_after: [names of entries]}.
/// The loss goes with the last stage and is counted nowhere. Faults go to `problems`, with an empty result.
Boundaries make_boundaries(const graph::Network& network, int partitions, const base::Tree& balance,
                           const std::vector<double>& costs, base::Problems& problems);

}  // namespace gpipe::pipeline
