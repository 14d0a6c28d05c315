// Measured cost of every node: real steps on one stage, timed instruction by instruction.
#pragma once

#include "core/pipeline/engine.h"
#include "core/pipeline/node_profile.h"

#include <vector>

namespace gpipe::pipeline {

/// How long measure_nodes goes on: until `repeats` steps and `seconds` are both reached, but never beyond `most_seconds`
/// (one step is always made). The medians are then over at least that many runs of each instruction.
struct ProfileLength {
  int repeats = 5;
  double seconds = 0.3;
  double most_seconds = 3;
};

/// The mini-batch to measure with: two micro-batches of the largest size, if there are two, so that gradients are added to
/// those of an earlier one, as they mostly are; else the only one. Samples, and micro-batches.
struct ProfileBatch {
  int64_t samples = 1;
  int64_t micro_batches = 1;
};
ProfileBatch profile_batch(const MicroBatches& micro_batches);

/// Medians over repeated steps after one to warm up. The engine's plan has one stage, keeps all activations and has the
/// micro-batches of profile_batch; `batch` is any mini-batch of its size. The engine's weights may change: make it for this
/// alone. By node of the network; copies and sums of gradients count for the node that they belong to.
std::vector<NodeProfile> measure_nodes(Engine& engine, const MiniBatch& batch, const ProfileLength& length);

}  // namespace gpipe::pipeline
