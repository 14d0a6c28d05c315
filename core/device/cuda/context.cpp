#include "core/device/cuda/context.h"

#include "core/base/error.h"

#include <span>

namespace gpipe::device::cuda {
namespace {

constexpr size_t faults_bytes = sizeof(Fault) * Queue::most_faults;

}  // namespace

void Queue::use() const { check(cudaSetDevice(device), "cudaSetDevice"); }
void Queue::check(cudaError_t status, const char* call) const { cuda::check(status, call, device); }
void Queue::launched(const char* kernel) const {
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess) check(status, fmt::format("the launch of kernel '{}'", kernel).c_str());
}

Context::Context(int device, Precision precision, std::shared_ptr<Algorithms> algorithms, std::string platform)
    : precision_(precision), algorithms_(std::move(algorithms)), platform_(std::move(platform)) {
  queue_.device = device;
  queue_.use();
  const auto stream = [&] {
    return make<Stream>(cudaStreamCreateWithFlags, "cudaStreamCreateWithFlags", device, unsigned{cudaStreamNonBlocking});
  };
  compute_ = stream();
  copies_ = stream();
  faults_ = DeviceMemory(device, faults_bytes);
  scratch_ = DeviceMemory(device, Queue::scratch_doubles * sizeof(double));
  faults_copy_ = PinnedMemory(device, faults_bytes);
  queue_.stream = compute_.get();
  queue_.faults = reinterpret_cast<Fault*>(faults_.data());
  queue_.scratch = reinterpret_cast<double*>(scratch_.data());
  check(cudaMemsetAsync(faults_.data(), 0, faults_bytes, compute()), "cudaMemsetAsync", device);
}

// Nothing may be freed under work that still runs; what it says is too late to tell.
Context::~Context() {
  cudaSetDevice(device());
  cudaStreamSynchronize(compute());
  cudaStreamSynchronize(copies());
}

std::byte* Context::blas_workspace() {
  if (blas_memory_.data() == nullptr) blas_memory_ = DeviceMemory(device(), blas_workspace_bytes);
  return blas_memory_.data();
}

cublasHandle_t Context::blas() {
  if (!blas_) {
    queue_.use();
    blas_ = make<Blas>(cublasCreate, "cublasCreate", device());
    check(cublasSetStream(blas_.get(), compute()), "cublasSetStream", device());
    check(cublasSetWorkspace(blas_.get(), blas_workspace(), blas_workspace_bytes), "cublasSetWorkspace", device());
    check(cublasSetMathMode(blas_.get(), CUBLAS_DEFAULT_MATH), "cublasSetMathMode", device());  // each call says whether TF32
  }
  return blas_.get();
}

cublasLtHandle_t Context::blas_lt() {
  if (!blas_lt_) {
    queue_.use();
    blas_lt_ = make<BlasLt>(cublasLtCreate, "cublasLtCreate", device());
  }
  return blas_lt_.get();
}

cudnnHandle_t Context::dnn() {
  if (!dnn_) {
    queue_.use();
    dnn_ = make<Dnn>(cudnnCreate, "cudnnCreate", device());
    check(cudnnSetStream(dnn_.get(), compute()), "cudnnSetStream", device());
  }
  return dnn_.get();
}

void Context::synchronize() {
  queue_.use();
  check(cudaMemcpyAsync(faults_copy_.data(), faults_.data(), faults_bytes, cudaMemcpyDeviceToHost, compute()), "cudaMemcpyAsync",
        device());
  check(cudaStreamSynchronize(compute()), "cudaStreamSynchronize", device());
  check(cudaStreamSynchronize(copies()), "cudaStreamSynchronize", device());
  const std::span all(reinterpret_cast<const Fault*>(faults_copy_.data()), Queue::most_faults);
  const Fault* first = nullptr;  // of the first check, and of its parts, which are in the order of their places
  for (const Fault& one : all)
    if (one.kind != Fault::Kind::none && (first == nullptr || one.check < first->check)) first = &one;
  if (first == nullptr) return;
  const Fault& fault = *first;
  check(cudaMemsetAsync(faults_.data(), 0, faults_bytes, compute()), "cudaMemsetAsync", device());
  if (fault.kind == Fault::Kind::token)
    throw base::DataError("token id {} at position {} of sample {} of the micro-batch is not in the vocabulary, 0..{}",
                          fault.value, fault.place % fault.length, fault.place / fault.length, fault.limit - 1);
  throw base::DataError("class {} at place {} of the micro-batch's targets is not in 0..{}", fault.value, fault.place,
                        fault.limit - 1);
}

}  // namespace gpipe::device::cuda
