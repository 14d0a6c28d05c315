#include "core/pipeline/in_turn_row.h"

namespace gpipe::pipeline {

// K = 3, M = 6 (Qi et al. 2023, section 2.2.2). Twice the forwards ahead fill the wait for the first gradient, twice the weight
// gradients put off fill the end; the devices start and end one after the other, and none idles in between:
//
//   device 0  F0 F1 F2 F3 F4 B0 W0 F5 B1 W1 B2 W2 B3 W3 B4 W4 B5 W5
//   device 1     F0 F1 F2 B0 F3 B1 F4 B2 W0 F5 B3 W1 B4 W2 B5 W3 W4 W5
//   device 2        F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 W0 F5 B5 W1 W2 W3 W4 W5

std::unique_ptr<RowStream> stream_zb_h2(const ScheduleRequest& request, int device) {
  return std::make_unique<InTurnRow>(
      request, device,
      InTurnRow::Shape{.ahead = 2 * (request.devices - 1 - device), .split = true, .weights_put_off = 2 * device});
}
Schedule make_zb_h2(const ScheduleRequest& request) { return collect_rows(request, 1, stream_zb_h2); }

}  // namespace gpipe::pipeline
