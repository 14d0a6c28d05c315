// Which micro-batches are recomputed, and what of them is kept all the same: the recompute policies.
#pragma once

#include "core/pipeline/plan.h"

#include <functional>
#include <vector>

namespace gpipe::pipeline {

/// Is micro-batch `micro` recomputed? Its backward comes first when it is 0: on every schedule they go in ascending order.
bool recomputes(Rematerialize policy, int micro);

/// What `rematerialize: auto` keeps.
struct KeepChoice {
  std::vector<std::vector<bool>> keep;  // by stage, by node of the stage
  double saved = 0;                     // seconds of recompute a micro-batch that are not done, over all stages
  double bound = 0;                     // no choice within the limits saves more
};

/// What a stage takes with a choice: for itself, and of the working memory that it shares with its device's other stages.
struct KeptBytes {
  size_t own = 0, working = 0;
  size_t least_working = 0;  // whatever is kept
};

/// Keeps what is dearest to compute for its bytes, as long as each device stays within its limit; then whatever still
/// fits, dearest first. `bytes` says what a stage takes with a choice. The bound is that of the fractional knapsack
/// (Dantzig 1957): no choice saves more, so saved / bound says how near this one is to the best. When nothing fits, nothing is
/// kept.
KeepChoice choose_kept(const Plan& plan, const std::vector<NodeProfile>& costs,
                       const std::function<KeptBytes(int stage, const std::vector<bool>& keep)>& bytes);

}  // namespace gpipe::pipeline
