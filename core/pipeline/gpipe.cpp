#include "core/pipeline/schedule.h"

namespace gpipe::pipeline {

// Stage j of K = 3, M = 4 (F forward, R recompute, B backward; time runs to the right):
//
//   stage 0   F0 F1 F2 F3 R0          B0 R1 B1 R2 B2 R3 B3
//   stage 1      F0 F1 F2 F3 R0    B0 R1 B1 R2 B2 R3 B3
//   stage 2         F0 F1 F2 F3 R0 B0 R1 B1 R2 B2 R3 B3
//
// R0 of an early stage runs while the gradient of micro-batch 0 is still on its way.
Schedule make_gpipe(const ScheduleRequest& request) {
  std::vector<Task> row;
  for (int i = 0; i < request.micro_batches; ++i) row.push_back({Work::forward, i});
  for (int i = 0; i < request.micro_batches; ++i) {
    if (request.recompute) row.push_back({Work::recompute, i});
    row.push_back({Work::backward, i});
  }
  return {request.stages, request.micro_batches, std::vector(static_cast<size_t>(request.stages), row)};
}

}  // namespace gpipe::pipeline
