// Plan: all that is known before the first step: partition, schedule, edges, programs, memory to the byte.
//
// Built on the main thread, without allocating what it plans; immutable afterwards. The engine runs exactly this.
#pragma once

#include "core/device/backend.h"
#include "core/graph/network.h"
#include "core/pipeline/device_list.h"
#include "core/pipeline/node_profile.h"
#include "core/pipeline/options.h"
#include "core/pipeline/program.h"

#include <memory>
#include <string>
#include <vector>

namespace gpipe::pipeline {

/// The samples of each micro-batch: N in M parts, the first N mod M of them one sample larger.
struct MicroBatches {
  MicroBatches(int64_t mini_batch, int64_t count);
  int64_t mini_batch;
  std::vector<int64_t> sizes;
  std::vector<int64_t> first_sample;
  int count() const { return static_cast<int>(sizes.size()); }
  device::Batches distinct() const;  // largest first
};

struct StagePlan {
  int first_node = 0, last_node = 0;         // [first, last)
  int device = 0;                            // index of the pipeline's device
  std::shared_ptr<device::Backend> backend;  // shared by the stages of a device
  std::vector<std::shared_ptr<graph::Operation>> operations;
  StageProgram program;
  StageMemory memory;
};

/// A bucket of narrower samples (graph::share_parameters).
struct NarrowerBucket {
  const graph::Network* network = nullptr;
  std::vector<NodeProfile> costs;  // of each node; empty: estimated
};

struct PlanRequest {
  const PipelineOptions& options;
  int64_t batch_size = 1;
  int optimizer_slots = 0;
  std::vector<NodeProfile> costs;  // of each node; empty: estimated
  /// Of each node, planned before for the same micro-batches: a plan made with them is to look at, not to run. Or null.
  const std::vector<std::shared_ptr<graph::Operation>>* operations = nullptr;
  std::vector<NarrowerBucket> narrower = {};  // buckets 1, 2, ...; none in a plan to look at
};

struct Plan {
  const graph::Network& network;
  PipelineOptions options;
  MicroBatches micro_batches;
  Boundaries boundaries;
  Schedule schedule;
  std::vector<EdgePlan> edges;
  std::vector<StagePlan> stages;
  int optimizer_slots = 0;
  std::vector<NodeProfile> costs;  // what it was planned with
  DeviceList devices;
  /// For `rematerialize: auto`: seconds of recompute saved in a micro-batch, and what no choice within the limit exceeds.
  double recompute_saved = 0, recompute_bound = 0;
  /// Of buckets 1, 2, ...; this one is of bucket 0, the widest. They have its boundaries, schedule, devices and edges, and
  /// nothing of their own in memory but what `stages` of the widest counts.
  std::vector<std::unique_ptr<Plan>> narrower;

  int buckets() const { return 1 + static_cast<int>(narrower.size()); }
  const Plan& bucket(int index) const { return index == 0 ? *this : *narrower.at(static_cast<size_t>(index) - 1); }
  size_t arena_bytes() const;
  int stage_of(int node) const;
  /// Which process has this device of the pipeline; 0 where there is but one.
  int process_of(int device) const;
  bool is_here(int device) const;
  /// Whether two stages are in different processes.
  bool is_remote(int stage, int other) const;
  /// Whether the device of a stage reaches the memory of another's: it is the same, in one process. By its name, because a
  /// process opens no devices but its own, and all must come to the same plan.
  bool reaches(int stage, int other) const;
  /// Bytes that cross from stage to stage in one mini-batch.
  size_t bytes_sent(const EdgePlan& edge) const;
};

/// Faults of the configuration (balance, partitions, schedule) are a ConfigError. The networks must outlive the plan.
std::unique_ptr<Plan> make_plan(const graph::Network& network, const PlanRequest& request);

/// Which process has this device of the pipeline, and whether it is this one.
int process_of(const PipelineOptions& options, int device);
bool has_device(const PipelineOptions& options, int device);

/// Cores that this process may run on.
std::vector<int> own_cores();
/// How many cores there are for the pipeline's threads, those of all its processes.
int usable_cores(const PipelineOptions& options);
/// Which cores a device of this process binds to; empty when there are not enough for all.
std::vector<int> cores_of_device(const PipelineOptions& options, int device);

}  // namespace gpipe::pipeline
