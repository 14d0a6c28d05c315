#include "core/pipeline/in_turn_row.h"

namespace gpipe::pipeline {

// K = 3, M = 4 (PipeDream-Flush, Narayanan et al. 2021, section 2.2.1; DAPPLE). Stage s holds at most K - s micro-batches:
//
//   device 0  F0 F1 F2       B0 F3 B1    B2    B3
//   device 1     F0 F1    B0 F2 B1 F3 B2    B3
//   device 2        F0 B0 F1 B1 F2 B2 F3 B3

std::unique_ptr<RowStream> stream_one_f_one_b(const ScheduleRequest& request, int device) {
  return std::make_unique<InTurnRow>(request, device, InTurnRow::Shape{.ahead = request.devices - 1 - device});
}
Schedule make_one_f_one_b(const ScheduleRequest& request) { return collect_rows(request, 1, stream_one_f_one_b); }

}  // namespace gpipe::pipeline
