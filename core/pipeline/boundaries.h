// From a network and its options to the first node of each stage. Pure functions, any thread.
#pragma once

#include "core/base/problems.h"
#include "core/graph/network.h"
#include "core/pipeline/device_list.h"
#include "core/pipeline/node_profile.h"
#include "core/pipeline/options.h"
#include "core/pipeline/partition.h"

#include <memory>
#include <vector>

namespace gpipe::pipeline {

/// ConfigError when there are more stages than layers.
void check_stages(const graph::Network& network, int stages, int chunks);

struct CutRequest {
  const graph::Network& network;
  const PipelineOptions& options;
  int stages = 1;                                                    // devices x chunks
  const std::vector<int>& device_of;                                 // by stage
  const DeviceList& devices;                                         // by device
  const std::vector<double>& costs;                                  // by node, the loss included (partition_costs)
  const std::vector<NodeProfile>& profile;                           // by node
  const std::vector<std::shared_ptr<graph::Operation>>& operations;  // by node
  const std::vector<int>& live;  // by stage: micro-batches of which something is kept at once (most_live)
  int micro_batches = 1;
  int64_t largest_batch = 1;  // samples of a micro-batch
  int optimizer_slots = 0;
  double limit_scale = 1;  // of the memory limits; 0: none
};

/// `options.balance` as configured: null or `auto` (options.objective, under the limits of memory), a list of node counts,
/// or {cut_after: [names of entries]}. The loss goes with the last stage and is counted nowhere. Faults go to `problems`,
/// with an empty result. What a stage's recompute leaves out is known here, its memory but nearly: working memory is that of
/// one micro-batch's activations and of the two largest. Where no split keeps the limits, the result is the one that comes
/// nearest; the plan knows the bytes.
Boundaries choose_boundaries(const CutRequest& request, base::Problems& problems);

}  // namespace gpipe::pipeline
