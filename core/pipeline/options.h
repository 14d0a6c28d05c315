// The `pipeline:` part of a configuration, as plain data. Ranges, units and help are in app/run_config.cpp.
#pragma once

#include "core/base/tree.h"
#include "core/device/backend.h"
#include "core/pipeline/partition.h"

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace gpipe::device {
class Algorithms;
class Peers;
}  // namespace gpipe::device

namespace gpipe::pipeline {

/// What a stage recomputes in backward: all but what crosses its border (GPipe, section 2.3); nothing; the same as full, but
/// for the micro-batch whose backward comes first; or as little as the memory limit allows.
enum class Rematerialize { full, none, keep_first, automatic };
constexpr std::array<const char*, 4> k_rematerialize_names{"full", "none", "keep_first", "auto"};
constexpr const char* name_of(Rematerialize policy) { return k_rematerialize_names[static_cast<size_t>(policy)]; }

struct PipelineOptions {
  int64_t partitions = 1;                       // K
  int64_t micro_batches = 1;                    // M
  base::Tree balance;                           // null or `auto`; a list of counts; {cut_after: [names]}
  Objective objective = Objective::bottleneck;  // of `balance: auto`
  base::Tree memory_limit;  // bytes of a stage's device, "8GiB", or a list with one a device; null or 0: all that it has
  base::Tree speeds;        // null, or a list with one number a device: how much faster than speed 1
  std::string schedule = "gpipe";
  int64_t chunks = 0;           // V, stages on a device; 0: the schedule's own, 2 where it takes any
  double activation_limit = 0;  // activations of whole devices, for schedules that fill gaps; 0: K
  Rematerialize rematerialize = Rematerialize::full;
  int64_t threads = 1;         // per stage
  bool bind_threads = true;    // to cores, when there are enough for all stages
  std::string device = "cpu";  // cpu | cuda
  base::Tree devices;          // of cuda: null, or a list with the index of the GPU of each device of the pipeline
  double transfer_timeout = device::BackendOptions{}.transfer_timeout;
  int64_t device_memory = 0;             // bytes of each device where they are known; 0: it is asked
  std::shared_ptr<device::Peers> peers;  // the processes that share the devices of the pipeline evenly, in order; null: this one
  bool cores_apart = false;              // the launcher gave each process cores of its own
  device::Precision precision = device::Precision::f32;  // train.precision
  std::shared_ptr<device::Algorithms> algorithms;        // of all devices of the run; null: as BackendOptions says
  bool search = false;                                   // take what core/pipeline/search.h finds fastest
  std::vector<std::string> search_keeps;                 // of partitions, micro_batches, schedule, rematerialize
};

}  // namespace gpipe::pipeline
