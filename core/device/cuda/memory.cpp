#include "core/device/cuda/memory.h"

#include "core/device/cuda/status.h"

#include <algorithm>
#include <cstring>

namespace gpipe::device::cuda {
namespace {

size_t at_least_one(size_t bytes) { return std::max<size_t>(bytes, 1); }

void wait_for(int device) {
  cudaSetDevice(device);
  cudaDeviceSynchronize();
}

}  // namespace

std::byte* OfDevice::take(int device, size_t bytes) {
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
  return static_cast<std::byte*>(data);
}

void OfDevice::give_back(int device, std::byte* data) {
  wait_for(device);
  cudaFree(data);
}

std::byte* Pinned::take(int device, size_t bytes) {
  check(cudaSetDevice(device), "cudaSetDevice", device);
  void* data = nullptr;
  const cudaError_t status = cudaMallocHost(&data, at_least_one(bytes));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw base::MemoryError("{} bytes of pinned host memory were wanted for cuda:{}: cudaMallocHost failed with {}", bytes,
                            device, text_of(status));
  }
  check(status, "cudaMallocHost", device);
  std::memset(data, 0, at_least_one(bytes));
  return static_cast<std::byte*>(data);
}

void Pinned::give_back(int device, std::byte* data) {
  wait_for(device);
  cudaFreeHost(data);
}

}  // namespace gpipe::device::cuda
