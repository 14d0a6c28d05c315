// The `pipeline:` part of a configuration, as plain data. Ranges, units and help are in app/run_config.cpp.
#pragma once

#include "core/base/tree.h"

#include <cstdint>
#include <string>

namespace gpipe::pipeline {

/// What a stage recomputes in backward: all but what crosses its border (GPipe, section 2.3); nothing; the same as full, but
/// for the micro-batch whose backward comes first; or as little as the memory limit allows.
enum class Rematerialize { full, none, keep_first, automatic };

struct PipelineOptions {
  int64_t partitions = 1;     // K
  int64_t micro_batches = 1;  // M
  base::Tree balance;         // null or `auto`; a list of counts; {cut_after: [names]}
  std::string schedule = "gpipe";
  int64_t chunks = 0;           // V, stages on a device; 0: the schedule's own, 2 where it takes any
  double activation_limit = 0;  // activations of whole devices, for schedules that fill gaps; 0: K
  int64_t memory_limit = 0;     // bytes a device; 0: all that the device has
  Rematerialize rematerialize = Rematerialize::full;
  int64_t threads = 1;         // per stage
  bool bind_threads = true;    // to cores, when there are enough for all stages
  std::string device = "cpu";  // cpu | cuda
};

}  // namespace gpipe::pipeline
