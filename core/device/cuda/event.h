// The leaf's Event: one of CUDA's, with its time.
#pragma once

#include "core/base/error.h"
#include "core/device/backend.h"
#include "core/device/cuda/handles.h"

namespace gpipe::device::cuda {

class CudaEvent final : public Event {
 public:
  /// The device is the thread's current one.
  explicit CudaEvent(int device)
      : device_(device),
        handle_(make<EventHandle>(cudaEventCreateWithFlags, "cudaEventCreateWithFlags", device, unsigned{cudaEventDefault})) {}
  ~CudaEvent() override { cudaSetDevice(device_); }
  cudaEvent_t get() const { return handle_.get(); }

 private:
  int device_;
  EventHandle handle_;
};

inline cudaEvent_t own(const Event& event) {
  const auto* mine = dynamic_cast<const CudaEvent*>(&event);
  GP_CHECK(mine != nullptr);
  return mine->get();
}

}  // namespace gpipe::device::cuda
