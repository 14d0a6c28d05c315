// What a kernel is launched with: the compute stream of one device of the pipeline, and a little memory beside it. Ops hold a
// reference; the backend owns it. Free of cuBLAS and cuDNN, because every file of kernels reads it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>

namespace gpipe::device::cuda {

/// The first bad number that a part of a check met since the last synchronize(); kernels cannot throw.
struct Fault {
  enum class Kind : int32_t { none = 0, token, target };
  Kind kind;
  int32_t value;
  int64_t check;   // which one it was, in the order of the calls
  int64_t place;   // in the micro-batch's ids
  int64_t length;  // ids a sample
  int64_t limit;   // values are 0..limit - 1
};

struct Queue {
  int device = 0;
  cudaStream_t stream = nullptr;
  Fault* faults = nullptr;     // in the device's memory, most_faults of them
  double* scratch = nullptr;   // in the device's memory, scratch_doubles of them, for one call at a time
  mutable int64_t checks = 0;  // find_fault() so far
  static constexpr int64_t scratch_doubles = 8192, most_faults = 256;

  /// Makes the device the calling thread's current one: a thread may serve several.
  void use() const;
  /// Throws what a call of the runtime says, as check() of status.h does.
  void check(cudaError_t status, const char* call) const;
  /// Throws if the launch of this kernel was refused.
  void launched(const char* kernel) const;
};

}  // namespace gpipe::device::cuda
