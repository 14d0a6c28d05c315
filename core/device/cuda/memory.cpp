#include "core/device/cuda/memory.h"

#include "core/device/cuda/status.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace gpipe::device::cuda {
namespace {

// Size 0 gets a byte, so that a null pointer always means "no such thing".
size_t at_least_one(size_t bytes) { return std::max<size_t>(bytes, 1); }

}  // namespace

DeviceMemory::DeviceMemory(int device, size_t bytes) : device_(device), bytes_(bytes) {
  check(cudaSetDevice(device), "cudaSetDevice", device);
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, at_least_one(bytes));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    throw base::MemoryError("cuda:{} is out of memory: {} bytes were wanted, {} of {} are free ({})", device, bytes, free, total,
                            text_of(status));
  }
  check(status, "cudaMalloc", device);
  data_ = static_cast<std::byte*>(data);
}

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept { *this = std::move(other); }
DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

DeviceMemory::~DeviceMemory() {
  if (data_ == nullptr) return;
  cudaSetDevice(device_);
  cudaDeviceSynchronize();  // an error may have left work in flight that uses it
  cudaFree(data_);
}

PinnedMemory::PinnedMemory(int device, size_t bytes) : device_(device), bytes_(bytes) {
  check(cudaSetDevice(device), "cudaSetDevice", device);
  void* data = nullptr;
  const cudaError_t status = cudaMallocHost(&data, at_least_one(bytes));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw base::MemoryError("{} bytes of pinned host memory were wanted for cuda:{}: cudaMallocHost failed with {}", bytes,
                            device, text_of(status));
  }
  check(status, "cudaMallocHost", device);
  data_ = static_cast<std::byte*>(data);
  std::memset(data_, 0, at_least_one(bytes));
}

PinnedMemory::PinnedMemory(PinnedMemory&& other) noexcept { *this = std::move(other); }
PinnedMemory& PinnedMemory::operator=(PinnedMemory&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

PinnedMemory::~PinnedMemory() {
  if (data_ == nullptr) return;
  cudaSetDevice(device_);
  cudaDeviceSynchronize();
  cudaFreeHost(data_);
}

}  // namespace gpipe::device::cuda
