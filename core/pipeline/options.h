// The `pipeline:` part of a configuration, as plain data. Ranges, units and help are in app/run_config.cpp.
#pragma once

#include "core/base/tree.h"

#include <cstdint>
#include <string>

namespace gpipe::pipeline {

/// Whether a stage recomputes its activations (GPipe, section 2.3) or keeps them all.
enum class Rematerialize { full, none };

struct PipelineOptions {
  int64_t partitions = 1;     // K
  int64_t micro_batches = 1;  // M
  base::Tree balance;         // null or `auto`; a list of counts; {cut_after: [names]}
  std::string schedule = "gpipe";
  Rematerialize rematerialize = Rematerialize::full;
  int64_t threads = 1;         // per stage
  bool bind_threads = true;    // to cores, when there are enough for all stages
  std::string device = "cpu";  // cpu | cuda
};

}  // namespace gpipe::pipeline
