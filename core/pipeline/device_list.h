// The devices of a pipeline where they differ: how fast, and how much memory. Pure functions, any thread.
#pragma once

#include "core/base/problems.h"

#include <cstdint>
#include <vector>

namespace gpipe::pipeline {

struct PipelineOptions;

struct DeviceList {
  std::vector<double> speeds;          // by device; empty: equally fast
  std::vector<int64_t> memory_limits;  // by device; 0: no limit known
  double speed(int device) const { return speeds.empty() ? 1.0 : speeds[static_cast<size_t>(device)]; }
};

/// pipeline.speeds and pipeline.memory_limit for `devices` devices that have `own_memory` bytes (0: unknown). Faults go to
/// `problems`.
DeviceList read_devices(const PipelineOptions& options, int devices, int64_t own_memory, base::Problems& problems);

}  // namespace gpipe::pipeline
