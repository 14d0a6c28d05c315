// What a node takes and holds for one micro-batch, measured (profile.h) or estimated (estimate.h). Plain data.
#pragma once

#include "core/pipeline/options.h"

#include <cstdint>

namespace gpipe::pipeline {

/// Seconds, and bytes, for one micro-batch of the largest size. Recompute is the forward run again: it takes `forward`.
struct NodeProfile {
  double forward = 0;
  double backward_input = 0;
  double backward_weight = 0;
  double pack = 0;           // once a mini-batch: packed copies of the weights, after the update
  double update = 0;         // once a mini-batch: unpacking of gradients, sums of squares, the optimizer, running averages
  int64_t kept_bytes = 0;    // from forward to backward, where nothing is recomputed
  int64_t output_bytes = 0;  // what a cut right behind the node sends
  /// What the node adds to its stage for each micro-batch.
  double total(Rematerialize policy) const { return (policy == Rematerialize::none ? 1 : 2) * forward + backward(); }
  double backward() const { return backward_input + backward_weight; }
};

}  // namespace gpipe::pipeline
