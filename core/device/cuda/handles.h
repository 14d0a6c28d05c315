// Owners of what the vendor libraries hand out. A destructor throws nothing: what a failing device says then was said before.
#pragma once

#include "core/device/cuda/status.h"

#include <memory>

namespace gpipe::device::cuda {

template <class Handle, auto destroy>
struct Destroyer {
  using pointer = Handle;
  void operator()(Handle handle) const noexcept { static_cast<void>(destroy(handle)); }
};
template <class Handle, auto destroy>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroyer<Handle, destroy>>;

using Stream = Owned<cudaStream_t, cudaStreamDestroy>;
using EventHandle = Owned<cudaEvent_t, cudaEventDestroy>;
using Blas = Owned<cublasHandle_t, cublasDestroy>;
using BlasLt = Owned<cublasLtHandle_t, cublasLtDestroy>;
using MatmulDescription = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using MatrixLayout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using MatmulPreference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;
using Dnn = Owned<cudnnHandle_t, cudnnDestroy>;
using TensorDescription = Owned<cudnnTensorDescriptor_t, cudnnDestroyTensorDescriptor>;
using FilterDescription = Owned<cudnnFilterDescriptor_t, cudnnDestroyFilterDescriptor>;
using ConvolutionDescription = Owned<cudnnConvolutionDescriptor_t, cudnnDestroyConvolutionDescriptor>;

/// make<Stream>(cudaStreamCreateWithFlags, "cudaStreamCreateWithFlags", device, cudaStreamNonBlocking): the handle comes first.
template <class Owner, class Create, class... Arguments>
Owner make(const Create& create, const char* call, int device, const Arguments&... arguments) {
  typename Owner::pointer handle = nullptr;
  check(create(&handle, arguments...), call, device);
  return Owner(handle);
}

}  // namespace gpipe::device::cuda
