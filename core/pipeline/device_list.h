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
  std::vector<std::string> names;      // by device, as device::open_backend takes them
  int64_t own_memory = 0;              // of each, without a limit
  double speed(int device) const { return speeds.empty() ? 1.0 : speeds[static_cast<size_t>(device)]; }
};

/// What each device of the pipeline is: "cpu", or "cuda:0", ... by pipeline.devices; without it the pipeline's devices are dealt
/// out to the GPUs in equal runs, as many as there are to a GPU.
std::vector<std::string> device_names(const PipelineOptions& options, int devices, base::Problems& problems);

/// pipeline.speeds and pipeline.memory_limit for `devices` devices that have `own_memory` bytes (0: unknown). Faults go to
/// `problems`.
DeviceList read_devices(const PipelineOptions& options, int devices, int64_t own_memory, base::Problems& problems);

}  // namespace gpipe::pipeline
