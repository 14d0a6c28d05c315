#include "core/pipeline/row_stream.h"

namespace gpipe::pipeline {

// K = 3, M = 4 with recompute (F forward, R recompute, B backward; time runs to the right):
//
//   device 0  F0 F1 F2 F3 R0          B0 R1 B1 R2 B2 R3 B3
//   device 1     F0 F1 F2 F3 R0    B0 R1 B1 R2 B2 R3 B3
//   device 2        F0 F1 F2 F3 R0 B0 R1 B1 R2 B2 R3 B3
//
// R0 of an early stage runs while the gradient of micro-batch 0 is still on its way.
namespace {

class GpipeRow final : public RowStream {
 public:
  GpipeRow(const ScheduleRequest& request, int device) : micro_batches_(request.micro_batches), device_(device) {}
  bool next(Task& task) override {
    if (position_ >= 2 * micro_batches_) return false;
    const bool forward = position_ < micro_batches_;
    task = {forward ? Work::forward : Work::backward, forward ? position_ : position_ - micro_batches_, device_};
    ++position_;
    return true;
  }

 private:
  int micro_batches_, device_;
  int position_ = 0;
};

}  // namespace

std::unique_ptr<RowStream> stream_gpipe(const ScheduleRequest& request, int device) {
  return std::make_unique<GpipeRow>(request, device);
}
Schedule make_gpipe(const ScheduleRequest& request) { return collect_rows(request, 1, stream_gpipe); }

}  // namespace gpipe::pipeline
