// Memory of a GPU, and memory of the host that a GPU copies from and to at full speed.
#pragma once

#include "core/device/backend.h"

#include <utility>

namespace gpipe::device::cuda {

/// What CUDA hands out for a device: Kind::take and Kind::give_back. Size 0 gets a byte, so that a null pointer always means
/// "no such thing".
template <class Kind>
class CudaMemory final : public Memory {
 public:
  CudaMemory() = default;
  CudaMemory(int device, size_t bytes) : device_(device), data_(Kind::take(device, bytes)), bytes_(bytes) {}
  CudaMemory(CudaMemory&& other) noexcept { *this = std::move(other); }
  CudaMemory& operator=(CudaMemory&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~CudaMemory() override {
    if (data_ != nullptr) Kind::give_back(device_, data_);
  }
  std::byte* data() const override { return data_; }
  size_t bytes() const override { return bytes_; }

 private:
  int device_ = 0;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// Both wait for the device before they give back: an error may have left work in flight that uses it.
struct OfDevice {
  static std::byte* take(int device, size_t bytes);
  static void give_back(int device, std::byte* data);
};
struct Pinned {
  static std::byte* take(int device, size_t bytes);
  static void give_back(int device, std::byte* data);
};

/// cudaMalloc: aligned to 256 bytes, contents undefined.
using DeviceMemory = CudaMemory<OfDevice>;
/// cudaMallocHost, zeroed.
using PinnedMemory = CudaMemory<Pinned>;

}  // namespace gpipe::device::cuda
