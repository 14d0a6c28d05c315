// Measured cost of every node: a few real steps on one stage, timed instruction by instruction.
#pragma once

#include "core/pipeline/engine.h"

#include <vector>

namespace gpipe::pipeline {

/// Runs `repeats` steps after one to warm up. `plan` has one stage; `batch` is any mini-batch of its size. The engine's
/// weights change: make it for this alone. By node of the network: medians over
/// micro-batches and repeats.
std::vector<NodeProfile> measure_nodes(Engine& engine, const MiniBatch& batch, int repeats);

}  // namespace gpipe::pipeline
