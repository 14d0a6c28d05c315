// What every call of a vendor library goes through: its status becomes one of our errors, which names the call, the status
// and the device; whoever calls adds stage and node. Out of memory is a MemoryError, a lost peer a PeerError, all else a
// DeviceError.
#pragma once

#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <nccl.h>
#include <string>

namespace gpipe::device::cuda {

void check(cudaError_t status, const char* call, int device);
void check(cublasStatus_t status, const char* call, int device);
void check(cudnnStatus_t status, const char* call, int device);
void check(ncclResult_t status, const char* call, int device);

/// "cudaErrorNoDevice (no CUDA-capable device is detected)"
std::string text_of(cudaError_t status);
std::string text_of(cudnnStatus_t status);

}  // namespace gpipe::device::cuda
