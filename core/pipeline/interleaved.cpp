#include "core/pipeline/row_stream.h"

#include <algorithm>

namespace gpipe::pipeline {

// K = 2, V = 2, M = 4: stages 0 and 2 on device 0, 1 and 3 on device 1 (Narayanan et al. 2021, section 2.2.2). Micro-batches
// go in groups of K: a group through all stages of the device, then the next. As in 1f1b, forwards ahead, then in turn; twice
// as many ahead as there are devices behind, as a neighbour is one forward and one backward away.
//
//   device 0  F0.0 F1.0 F0.2 F1.2 F2.0 B0.2 F3.0 B1.2 F2.2 B0.0 F3.2 B1.0 B2.2 B3.2 B2.0 B3.0
//   device 1  F0.1 F1.1 F0.3 B0.3 F1.3 B1.3 F2.1 B0.1 F3.1 B1.1 F2.3 B2.3 F3.3 B3.3 B2.1 B3.1
namespace {

class InterleavedRow final : public RowStream {
 public:
  InterleavedRow(const ScheduleRequest& request, int device)
      : devices_(request.devices),
        chunks_(request.chunks),
        device_(device),
        count_(int64_t{request.micro_batches} * request.chunks),
        ahead_(2 * int64_t{request.devices - 1 - device} + int64_t{request.chunks - 1} * request.devices) {}

  bool next(Task& task) override {
    if (forwards_ < count_ && forwards_ <= ahead_ + backwards_) {
      task = at(Work::forward, forwards_++);
    } else if (backwards_ < count_) {
      task = at(Work::backward, backwards_++);
    } else {
      return false;
    }
    return true;
  }

 private:
  /// The `index`-th forward or backward of this device.
  Task at(Work work, int64_t index) const {
    const int64_t group = int64_t{devices_} * chunks_;
    const int64_t turn = index % group / devices_;
    const int64_t chunk = work == Work::forward ? turn : chunks_ - 1 - turn;
    return {work, static_cast<int>(index / group * devices_ + index % devices_), static_cast<int>(chunk * devices_ + device_)};
  }

  int devices_, chunks_, device_;
  int64_t count_, ahead_;
  int64_t forwards_ = 0, backwards_ = 0;
};

}  // namespace

std::unique_ptr<RowStream> stream_interleaved(const ScheduleRequest& request, int device) {
  return std::make_unique<InterleavedRow>(request, device);
}
Schedule make_interleaved(const ScheduleRequest& request) { return collect_rows(request, request.chunks, stream_interleaved); }

}  // namespace gpipe::pipeline
