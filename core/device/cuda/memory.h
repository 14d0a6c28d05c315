// Memory of a GPU, and memory of the host that a GPU copies from and to at full speed.
#pragma once

#include "core/device/backend.h"

namespace gpipe::device::cuda {

/// cudaMalloc: aligned to 256 bytes, contents undefined.
class DeviceMemory final : public Memory {
 public:
  DeviceMemory() = default;
  DeviceMemory(int device, size_t bytes);
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  ~DeviceMemory() override;
  std::byte* data() const override { return data_; }
  size_t bytes() const override { return bytes_; }

 private:
  int device_ = 0;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

/// cudaMallocHost, zeroed.
class PinnedMemory final : public Memory {
 public:
  PinnedMemory() = default;
  PinnedMemory(int device, size_t bytes);
  PinnedMemory(PinnedMemory&& other) noexcept;
  PinnedMemory& operator=(PinnedMemory&& other) noexcept;
  ~PinnedMemory() override;
  std::byte* data() const override { return data_; }
  size_t bytes() const override { return bytes_; }

 private:
  int device_ = 0;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace gpipe::device::cuda
