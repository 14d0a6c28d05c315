// What the descriptors of cuBLASLt hold here.
#pragma once

#include "tests/emulated_cuda/state.h"

#include <cublasLt.h>
#include <string>

namespace gpipe::emulated {

struct MatmulDescriptor : cublasLtMatmulDescOpaque_t {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType_t scale_type = CUDA_R_32F;
  int32_t pointer_mode = CUBLASLT_POINTER_MODE_HOST;
  int32_t transa = CUBLAS_OP_N;
  int32_t transb = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  int64_t bias_stride = 0;
  int32_t bias_type = -1;  // -1: that of D
};

struct MatrixLayout : cublasLtMatrixLayoutOpaque_t {
  uint32_t type = CUDA_R_32F;
  int32_t order = CUBLASLT_ORDER_COL;
  uint64_t rows = 0;
  uint64_t cols = 0;
  int64_t ld = 0;
  int32_t batches = 1;
  int64_t stride = 0;
};

struct MatmulPreference : cublasLtMatmulPreferenceOpaque_t {
  uint64_t max_workspace = 0;
  uint32_t alignment[4] = {256, 256, 256, 256};  // of A, B, C, D
};

struct LtHandle {
  int device = 0;
};

/// Reports "CALL: WHY" and returns the status. Without Lock.
cublasStatus_t refuse_lt(const char* call, cublasStatus_t status, const std::string& why);

/// A copy of a live descriptor; false after a report. Without Lock.
bool read_object(const char* call, const char* argument, cublasLtMatmulDesc_t descriptor, MatmulDescriptor& out);
bool read_object(const char* call, const char* argument, cublasLtMatrixLayout_t descriptor, MatrixLayout& out);
bool read_object(const char* call, const char* argument, cublasLtMatmulPreference_t descriptor, MatmulPreference& out);
bool read_object(const char* call, const char* argument, cublasLtHandle_t handle, LtHandle& out);

template <class Body>
cublasStatus_t lt_call(const char* call, int device, Body&& body) {
  const Entry entry = enter(call, device);
  if (entry.injected) return static_cast<cublasStatus_t>(entry.code);
  if (entry.device_error != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;
  return body();
}

}  // namespace gpipe::emulated
