// The options of a pipeline as the tests of exactness vary them.
#pragma once

#include "core/pipeline/options.h"

#include <string>

namespace gpipe::test {

using pipeline::Rematerialize;

inline pipeline::PipelineOptions options(int64_t partitions, int64_t micro_batches, Rematerialize policy,
                                         const std::string& schedule = "gpipe") {
  pipeline::PipelineOptions o;
  o.partitions = partitions;
  o.micro_batches = micro_batches;
  o.rematerialize = policy;
  o.schedule = schedule;
  o.bind_threads = false;
  return o;
}

}  // namespace gpipe::test
