// search: which K, M, schedule, V and recompute policy is fastest within the memory of the devices, by simulation.
#pragma once

#include "core/pipeline/plan.h"
#include "core/pipeline/predict.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace gpipe::pipeline {

struct SearchRequest {
  const graph::Network& network;
  PipelineOptions options;  // threads, device, objective and limits of every candidate
  int64_t batch_size = 1;
  int optimizer_slots = 0;
  int devices = 1;                     // K goes from 1 to this
  int cores = 0;                       // that stages on CPUs share; 0: as many as their threads
  std::vector<int64_t> micro_batches;  // M; empty: the powers of two up to min(batch_size, 64)
  /// Costs of the nodes when a mini-batch is cut into so many micro-batches; empty: estimated.
  std::function<std::vector<NodeProfile>(int64_t micro_batches)> costs;
};

/// One way to run, planned and simulated.
struct Candidate {
  PipelineOptions options;
  double step_seconds = 0;  // of as many cores as threads, but no less than the cores there are need
  double bubble = 0;
  int64_t largest_bytes = 0;  // of the fullest device
  int64_t limit = 0;          // of that device; 0: none
  bool fits() const { return limit == 0 || largest_bytes <= limit; }
  int64_t excess() const { return largest_bytes - limit; }
};

/// Micro-batches are powers of two. Where a layer takes statistics of the micro-batch (batch norm), M changes what is learned:
/// then none has fewer than k_least_samples samples. What `options.search_keeps` names stays as it is.
constexpr int64_t k_least_samples = 16;

/// Those that fit, fastest first, then the others, least excess first. Times within half a percent: less memory first, then
/// fewer devices.
/// A combination that cannot be (more stages than layers, M no multiple of K, ...) is left out.
std::vector<Candidate> search(const SearchRequest& request);

/// The fullest device of a plan against its limit.
struct MemoryVerdict {
  int device = 0;
  int64_t bytes = 0;
  int64_t limit = 0;  // 0: none
  bool fits() const { return limit == 0 || bytes <= limit; }
};
MemoryVerdict memory_verdict(const Plan& plan);

/// Does a layer take statistics of the micro-batch?
bool has_batch_statistics(const graph::Network& network);
/// A step on `cores` cores takes no less than its work does; 0 where every thread has a core.
double least_seconds(const Plan& plan, const Prediction& prediction, int cores);

}  // namespace gpipe::pipeline
