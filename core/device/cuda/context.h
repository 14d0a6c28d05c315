// What the ops of one backend share: device, streams, library handles. Library handles are made when first wanted, because a
// backend is also opened just to ask what the device is.
#pragma once

#include "core/device/algorithms.h"
#include "core/device/cuda/handles.h"
#include "core/device/cuda/memory.h"
#include "core/device/cuda/queue.h"
#include "core/device/precision.h"

#include <memory>
#include <string>

namespace gpipe::device::cuda {

class Context {
 public:
  /// `platform`: GPU, libraries and precision in words, which choices of algorithms belong to.
  Context(int device, Precision precision, std::shared_ptr<Algorithms> algorithms, std::string platform);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context();

  const Queue& queue() const { return queue_; }
  int device() const { return queue_.device; }
  cudaStream_t compute() const { return compute_.get(); }
  cudaStream_t copies() const { return copies_.get(); }

  Precision precision() const { return precision_; }
  /// Of products: f32 means f32, in which no tensor core rounds the factors.
  bool tf32() const { return precision_ == Precision::tf32; }
  /// Whether the factors of linear maps and convolutions are rounded by us, to numbers of 16 bits.
  bool narrow() const { return precision_ == Precision::bf16 || precision_ == Precision::f16; }
  /// Of f32 factors: FAST_TF32 rounds them; and of narrow ones, which are multiplied as they are.
  cublasComputeType_t compute_type() const { return tf32() ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F; }
  /// What the factors are stored as for cuBLAS, and all that cuDNN reads and writes.
  cudaDataType blas_factor() const { return !narrow() ? CUDA_R_32F : precision_ == Precision::bf16 ? CUDA_R_16BF : CUDA_R_16F; }
  cudnnDataType_t dnn_type() const {
    return !narrow() ? CUDNN_DATA_FLOAT : precision_ == Precision::bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
  }

  Algorithms& algorithms() const { return *algorithms_; }
  const std::string& platform() const { return platform_; }

  cublasHandle_t blas();
  cublasLtHandle_t blas_lt();
  cudnnHandle_t dnn();

  /// cuBLAS works in this memory and no other: it is one of the two things that its results' bits depend on besides the shapes
  /// (the other is that no two of its calls run at once, which one stream grants).
  std::byte* blas_workspace();
  static constexpr size_t blas_workspace_bytes = size_t{32} << 20;  // what NVIDIA recommends for Hopper

  /// Waits for both streams, then throws what went wrong in them.
  void synchronize();

 private:
  Precision precision_;
  std::shared_ptr<Algorithms> algorithms_;
  std::string platform_;
  Queue queue_;
  Stream compute_, copies_;
  DeviceMemory faults_, scratch_, blas_memory_;
  PinnedMemory faults_copy_;
  Blas blas_;
  BlasLt blas_lt_;
  Dnn dnn_;
};

}  // namespace gpipe::device::cuda
