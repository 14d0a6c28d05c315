// Where to cut a list of nodes into K stages of consecutive nodes: the problem as plain data, and its exact answers.
//
// Pure functions, any thread. Nothing here knows a network: core/pipeline/boundaries.h makes the problem of one.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace gpipe::pipeline {

/// First node of each stage, and past the last one: K + 1 ascending node indices, front() = 0, back() = all nodes.
using Boundaries = std::vector<int>;

/// What the best split is.
/// - bottleneck: the slowest stage is as fast as it can be; among those the least variance, then the fewest bytes cut.
/// - variance: the least variance of the stages' times (GPipe, section 2.2), then the fewest bytes cut.
/// - cumulative: no search: layer i goes to stage min(floor(share x K), K - 1), where share is that of layers 0 to i, i
///   included, of all cost. Memory and speeds have no say in it.
enum class Objective { bottleneck, variance, cumulative };

/// What a stage of nodes [b, e) holds when it is stage s:
///   sum of fixed + live[s] x sum of kept + the largest workspace + cut bytes(b) x slots_in[s] + cut bytes(e) x slots_out[s].
/// Bytes. Empty lists count as zeros, but live as ones.
struct MemoryModel {
  std::vector<int64_t> fixed, kept, workspace;     // by node
  std::vector<int64_t> live, slots_in, slots_out;  // by stage: micro-batches that are there at once
};

/// A part of a node's cost that is not paid in some stages.
struct Spared {
  int node = 0;
  double cost = 0;  // at most the node's
};

struct PartitionProblem {
  std::vector<double> costs;       // of the nodes in order, on a device of speed 1, at least 0; seconds, or any unit
  std::vector<double> cut_costs;   // [i]: of a cut after node i, paid by both of its stages; the unit of costs; empty: none
  std::vector<int64_t> cut_bytes;  // [i]: what a cut after node i sends; empty: none
  /// [i]: what a stage that ends after node i is spared, of those nodes that it holds (a last layer is not run again in a
  /// recompute); empty: nothing. What a stage that ends at i + 1 is spared of nodes up to i, one that ends at i is too.
  std::vector<std::vector<Spared>> spared;
  int stages = 1;              // K; every stage gets at least one node
  std::vector<double> speeds;  // by stage, above 0; empty: all 1
  MemoryModel memory;
  std::vector<int64_t> memory_limits;  // bytes by stage, 0: none; empty: none at all
};

struct Partition {
  Boundaries boundaries;
  std::vector<double> loads;  // by stage: (costs - spared) / speed + the cut costs at both ends
  double bottleneck = 0;      // the largest load
  double variance = 0;        // of the loads; the square of their unit
  int64_t bytes_cut = 0;
};

/// No split keeps all limits. The one that comes nearest (the least largest excess) has its worst stage here.
struct Misfit {
  int stage = 0;
  int first_node = 0, last_node = 0;  // [first, last)
  int64_t bytes = 0, limit = 0;
  Boundaries boundaries = {};  // of the whole split
  int64_t excess() const { return bytes - limit; }
};

/// Exact: costs are taken as whole numbers of a tick, a power of ten small enough for nine digits of their sum, and every
/// comparison is one of integers. Dynamic programs over (stage, node), O(K n^2) at worst and near O(n^2) in practice; with
/// unequal speeds or cut costs the variance is a few of them, along the convex hull of (sum, sum of squares) of the loads.
/// ConfigError: K not in 1 to n, a cost that is negative or not finite, a speed that is not above 0, a stage that
/// `cumulative` leaves empty.
std::variant<Partition, Misfit> partition(const PartitionProblem& problem, Objective objective);

/// Loads, bottleneck, variance and bytes of any split of the problem.
Partition measure(const PartitionProblem& problem, Boundaries boundaries);
/// Bytes of nodes [first, last) as stage `stage`.
int64_t stage_bytes(const PartitionProblem& problem, int stage, int first, int last);

}  // namespace gpipe::pipeline
