// The searches of partition(): the problem in whole ticks, and one dynamic program with the sums that it compares.
// Pure functions, any thread.
#pragma once

#include "core/pipeline/partition.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace gpipe::pipeline {

constexpr int64_t k_unbounded = std::numeric_limits<int64_t>::max();

/// A problem in whole numbers. All loads of a split add up to less than 2^31, so sums of squares fit 63 bits.
class TickProblem {
 public:
  explicit TickProblem(const PartitionProblem& problem);

  int nodes() const { return nodes_; }
  int stages() const { return stages_; }
  const std::vector<int64_t>& prefix() const { return prefix_; }  // [i]: cost of the nodes before i
  int64_t bytes(int boundary) const { return cut_bytes_[static_cast<size_t>(boundary)]; }
  bool constant_sum() const { return equal_ && !has_cuts_ && most_spared_ == 0; }  // the loads of every split have the same sum
  int64_t largest_sum() const { return largest_sum_; }
  /// Of nodes [begin, end) without the cuts: grows with either side.
  int64_t base(int stage, int begin, int end) const;
  int64_t load(int stage, int begin, int end) const {
    return base(stage, begin, end) + cuts_[static_cast<size_t>(begin)] + cuts_[static_cast<size_t>(end)];
  }
  int64_t limit(int stage) const { return limits_[static_cast<size_t>(stage)]; }  // k_unbounded: none
  /// Bytes without workspace and cuts, which grow with either side; and those of the cuts.
  int64_t held(int stage, int begin, int end) const;
  int64_t held_by_cuts(int stage, int begin, int end) const;
  int64_t workspace(int node) const { return workspace_[static_cast<size_t>(node)]; }

  /// Whether the nodes before `end` fit into stages 0 to `stage`, and those behind it into the others, none dearer than
  /// `bound`; the last stage ends with the last node alone.
  bool may_end(int stage, int end, int64_t bound) const;
  /// No split has a cheaper slowest stage.
  int64_t least_possible() const;

  /// Calls visit(begin, load, bytes) for every begin of a stage that ends at `end`, the shortest first, while visit says
  /// to go on; stages dearer than `bound` or, if `limited`, over the limit are left out.
  template <class Visit>
  void each_begin(int stage, int end, int64_t bound, bool limited, Visit visit) const;

 private:
  int nodes_ = 0, stages_ = 0;
  bool equal_ = true, has_cuts_ = false;
  int64_t largest_sum_ = 0;
  std::vector<int64_t> prefix_, cuts_, cut_bytes_;             // n + 1 each; no cut at either end
  std::vector<std::vector<std::pair<int, int64_t>>> spared_;   // by end: node and cost; or empty
  int64_t most_spared_ = 0;                                    // of a stage
  double fastest_ = 1;                                         // the least of slowness_
  std::vector<double> slowness_;                               // by stage: 1 / speed; all 1 when they are equal
  std::vector<int64_t> limits_, live_, slots_in_, slots_out_;  // by stage
  std::vector<int64_t> fixed_, kept_;                          // prefix sums
  std::vector<int64_t> workspace_, workspace_up_to_;           // by node; the largest of it and those before
};

/// The least possible largest load, with no stage over its limit; k_unbounded when there is no such split.
int64_t least_bottleneck(const TickProblem& problem);
/// The least variance of loads up to `bound`, then the fewest bytes cut. There must be such a split.
Boundaries least_variance(const TickProblem& problem, int64_t bound);
/// The split whose worst stage is the least over its limit.
Boundaries least_excess(const TickProblem& problem);

template <class Visit>
void TickProblem::each_begin(int stage, int end, int64_t bound, bool limited, Visit visit) const {
  // The first stage begins at the first node.
  int64_t largest_workspace = stage == 0 ? workspace_up_to_[static_cast<size_t>(end) - 1] : 0;
  const int64_t most = limited ? limit(stage) : k_unbounded;
  for (int begin = stage == 0 ? 0 : end - 1; begin >= stage; --begin) {
    const int64_t plain = base(stage, begin, end);
    if (plain > bound) return;  // longer ones only get dearer
    largest_workspace = std::max(largest_workspace, workspace(begin));
    const int64_t bytes = held(stage, begin, end) + largest_workspace;
    if (bytes > most) return;
    const int64_t all_bytes = bytes + held_by_cuts(stage, begin, end);
    const int64_t all = plain + cuts_[static_cast<size_t>(begin)] + cuts_[static_cast<size_t>(end)];
    if (all > bound || all_bytes > most) continue;
    if (!visit(begin, all, all_bytes)) return;
  }
}

}  // namespace gpipe::pipeline
