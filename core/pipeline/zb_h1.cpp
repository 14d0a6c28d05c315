#include "core/pipeline/in_turn_row.h"

namespace gpipe::pipeline {

// K = 3, M = 4 (Qi et al. 2023, section 2.2.1; B the gradient that is sent on, W the parameters' gradients):
//
//   device 0  F0 F1 F2       B0 W0 F3 B1 W1 B2 W2 B3 W3
//   device 1     F0 F1    B0 F2 B1 W0 F3 B2 W1 B3 W2 W3
//   device 2        F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3
//
// Stage s puts off s weight gradients: late stages, which hold few activations, fill the gaps at the end with them.

std::unique_ptr<RowStream> stream_zb_h1(const ScheduleRequest& request, int device) {
  return std::make_unique<InTurnRow>(
      request, device, InTurnRow::Shape{.ahead = request.devices - 1 - device, .split = true, .weights_put_off = device});
}
Schedule make_zb_h1(const ScheduleRequest& request) { return collect_rows(request, 1, stream_zb_h1); }

}  // namespace gpipe::pipeline
