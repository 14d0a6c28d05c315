#include "core/device/cuda/status.h"

#include "core/base/error.h"

namespace gpipe::device::cuda {
namespace {

[[noreturn]] void fail(bool memory, const char* call, const std::string& status, int device) {
  if (memory) throw base::MemoryError("cuda:{} is out of memory: {} failed with {}", device, call, status);
  throw base::DeviceError("cuda:{}: {} failed with {}", device, call, status);
}

/// What a library's status leaves out where it was the first to notice that the device is broken; or nothing.
std::string and_cuda(int device) {
  cudaSetDevice(device);
  const cudaError_t last = cudaGetLastError();
  return last == cudaSuccess ? std::string() : ", " + text_of(last);
}

}  // namespace

std::string text_of(cudaError_t status) { return fmt::format("{} ({})", cudaGetErrorName(status), cudaGetErrorString(status)); }
std::string text_of(cudnnStatus_t status) { return cudnnGetErrorString(status); }

void check(cudaError_t status, const char* call, int device) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // an error that does not stay must not show at the next launch
  fail(status == cudaErrorMemoryAllocation, call, text_of(status), device);
}

void check(cublasStatus_t status, const char* call, int device) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  fail(status == CUBLAS_STATUS_ALLOC_FAILED, call,
       fmt::format("{} ({}){}", cublasGetStatusName(status), cublasGetStatusString(status), and_cuda(device)), device);
}

void check(cudnnStatus_t status, const char* call, int device) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  char last[512] = "";
  cudnnGetLastErrorString(last, sizeof last);
  const bool memory = status == CUDNN_STATUS_ALLOC_FAILED || status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
  fail(memory, call, (last[0] == 0 ? text_of(status) : fmt::format("{} ({})", text_of(status), last)) + and_cuda(device), device);
}

void check(ncclResult_t status, const char* call, int device) {
  if (status == ncclSuccess) return;
  const char* last = ncclGetLastError(nullptr);
  const std::string words =
      fmt::format("{}{}{}", ncclGetErrorString(status), last == nullptr || *last == 0 ? "" : ": ", last == nullptr ? "" : last) +
      and_cuda(device);
  if (status == ncclRemoteError) throw base::PeerError("cuda:{}: a peer was lost: {} failed with {}", device, call, words);
  const char* advice = status == ncclSystemError ? "; NCCL_DEBUG=INFO says more; in a container /dev/shm may be too small" : "";
  throw base::DeviceError("cuda:{}: {} failed with {}{}", device, call, words, advice);
}

}  // namespace gpipe::device::cuda
