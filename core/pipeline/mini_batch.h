// MiniBatch: what the trainer hands the engine for one step.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpipe::pipeline {

/// One mini-batch as all stages see it. The arrays are the caller's and hold N samples.
struct MiniBatch {
  std::byte* input = nullptr;   // [N, sample shape]
  std::byte* target = nullptr;  // [N, target shape]
  /// [losses, N, 2]: loss and hits of each sample, over its targets; the main loss, then the auxiliary ones.
  float* results = nullptr;
  float* predictions = nullptr;  // [N, prediction shape] or null
  int64_t samples = 0;           // valid rows; 0 means N. The rest counts for nothing, but batch norm sees it
  int64_t targets = 0;           // in the valid rows, what the loss is averaged over; 0 means one a valid row
  double progress = 0;           // graph::Pass::progress
  double loss_scale = 1;         // a power of two: gradients are so much larger until the update takes it out again
  int64_t step = 0;
  uint64_t seed = 0;
  /// [N] or null: of predictions [positions, values] only those of one position of each sample are written, [N, values].
  const int32_t* prediction_positions = nullptr;
  int bucket = 0;  // of the plan: the shapes of samples and targets
};

}  // namespace gpipe::pipeline
