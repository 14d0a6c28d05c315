// Kernels: their bodies run on the stream's thread.
#pragma once

#include <cuda_runtime_api.h>
#include <functional>

/// What core/device/cuda/skeletons.h calls where nvcc would launch. Errors are left for cudaGetLastError().
void gpipe_emulated_launch(cudaStream_t stream, const char* kernel, std::function<void()> body);

namespace gpipe::emulated {

/// Makes a touch of freed memory or of a guard page name the kernel before the process ends. Not under sanitizers.
void install_fault_handler();

}  // namespace gpipe::emulated
