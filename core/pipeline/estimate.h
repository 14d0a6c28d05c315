// Costs of nodes without a measurement of them: operations and bytes over what the device reaches at its best; and costs
// that the configuration gives. Pure functions, any thread.
#pragma once

#include "core/graph/network.h"
#include "core/pipeline/node_profile.h"

#include <cstdint>
#include <vector>

namespace gpipe::pipeline {

/// What a device reaches with the threads of a stage (core/pipeline/calibrate.h measures it). The defaults are those of one
/// server core with AVX-512; only their ratios matter for a partition.
struct DevicePeaks {
  double convolution_flops = 2e11;  // operations a second
  double linear_flops = 2e11;
  double memory_bytes = 1e10;  // bytes a second, read and written
};

/// Each direction takes the longer of its operations and of its bytes: inputs and outputs once forward, twice as much
/// backward; weights once, and once more where
/// gradients are added. An update reads and writes weights and slots, and packs. Kept bytes are the output's.
std::vector<NodeProfile> estimated_profile(const graph::Network& network, const DevicePeaks& peaks, int64_t samples,
                                           int optimizer_slots = 1);

/// What the partition goes by, by node, the loss included: the profile's totals; or, where the network's entries carry
/// `cost`, those, each shared out over its entry's nodes in proportion to the totals. The loss is free then.
std::vector<double> partition_costs(const graph::Network& network, const std::vector<NodeProfile>& profile, Rematerialize policy);

}  // namespace gpipe::pipeline
