// Pipelines on GPUs, emulated or real, for the tests of both.
#pragma once

#include "tests/emulated_cuda/emulated.h"
#include "tests/pipeline/exactness.h"
#include "tests/support/small_run.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace gpipe::test {

/// Options for stages on these GPUs, in order; one after the other again when there are more stages.
inline pipeline::PipelineOptions on_gpus(int gpus, int64_t partitions, int64_t micro_batches, Rematerialize policy,
                                         const std::string& schedule) {
  pipeline::PipelineOptions o = options(partitions, micro_batches, policy, schedule);
  o.device = "cuda";
  std::vector<base::Tree> list;
  for (int64_t i = 0; i < partitions; ++i) list.push_back(base::Tree::scalar(std::to_string(i % gpus)));
  o.devices = base::Tree::list(list);
  return o;
}

inline SmallRun small_tokens() {
  SmallRun run{k_token_network, {11}};
  run.classes = 9;
  run.tokens = true;
  run.optimizer = "adam";
  run.learning_rate = 0.01;
  return run;
}

/// No call was misused since the last time, and nothing is left on the devices, which are new then.
inline void check_clean() {
  for (const std::string& sentence : emulated::violations()) FAIL_CHECK(sentence);
  for (const std::string& sentence : emulated::leaks()) FAIL_CHECK(sentence);
  emulated::reset();
}

}  // namespace gpipe::test
