// A small run in several processes, which are threads here.
#pragma once

#include "tests/support/small_run.h"
#include "tests/support/thread_peers.h"

namespace gpipe::test {

/// What process 0 has after some steps in `processes` of them.
inline RunBits in_processes(const SmallRun& run, const pipeline::PipelineOptions& o, int processes) {
  RunBits first;
  with_peers(processes, [&](const auto& peers) {
    pipeline::PipelineOptions mine = o;
    mine.peers = peers;
    const RunBits bits = run_steps(run, mine, 3);
    if (peers->rank() == 0) first = bits;
  });
  return first;
}

}  // namespace gpipe::test
