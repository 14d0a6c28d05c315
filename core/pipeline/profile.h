// Measured cost of every node: a few real steps on one stage, timed instruction by instruction.
#pragma once

#include "core/pipeline/engine.h"

#include <vector>

namespace gpipe::pipeline {

/// Seconds for one micro-batch of the largest size; medians over micro-batches and repeats.
struct NodeProfile {
  double forward = 0;
  double backward_input = 0;
  double backward_weight = 0;
  /// What the node adds to its stage for each micro-batch.
  double total(Rematerialize policy) const {
    return (policy == Rematerialize::full ? 2 : 1) * forward + backward_input + backward_weight;
  }
};

/// Runs `repeats` steps after one to warm up. `plan` has one stage; `batch` is any mini-batch of its size. The engine's
/// weights change: make it for this alone. By node of the network.
std::vector<NodeProfile> measure_nodes(Engine& engine, const MiniBatch& batch, int repeats);

}  // namespace gpipe::pipeline
