// What the opaque types of cuDNN hold here, and how its calls begin.
#pragma once

#include "tests/emulated_cuda/state.h"

#include <cudnn.h>
#include <string>

struct cudnnContext {
  int device = 0;
  cudaStream_t stream = nullptr;
};

struct cudnnTensorStruct {
  bool set = false;
  cudnnTensorFormat_t format = CUDNN_TENSOR_NCHW;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  int n = 0, c = 0, h = 0, w = 0;
  int64_t elements() const { return int64_t{n} * c * h * w; }
};

struct cudnnFilterStruct {
  bool set = false;
  cudnnTensorFormat_t format = CUDNN_TENSOR_NCHW;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  int k = 0, c = 0, h = 0, w = 0;
  int64_t elements() const { return int64_t{k} * c * h * w; }
};

struct cudnnConvolutionStruct {
  bool set = false;
  int pad_h = 0, pad_w = 0, stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1;
  cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  cudnnDataType_t compute = CUDNN_DATA_FLOAT;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
  int groups = 1;
};

namespace gpipe::emulated {

/// Reports "CALL: WHY", keeps it for cudnnGetLastErrorString, and returns the status. Without Lock.
cudnnStatus_t refuse(const char* call, cudnnStatus_t status, const std::string& why);

/// A copy of what a live handle or descriptor holds; false after a report. Without Lock.
bool read_object(const char* call, const char* argument, cudnnHandle_t handle, cudnnContext& out);
bool read_object(const char* call, const char* argument, cudnnTensorDescriptor_t descriptor, cudnnTensorStruct& out);
bool read_object(const char* call, const char* argument, cudnnFilterDescriptor_t descriptor, cudnnFilterStruct& out);
bool read_object(const char* call, const char* argument, cudnnConvolutionDescriptor_t descriptor, cudnnConvolutionStruct& out);

int device_of_cudnn(cudnnHandle_t handle);

/// A call with a handle: `device` is the handle's, or -1 for calls on descriptors.
template <class Body>
cudnnStatus_t cudnn_call(const char* call, int device, Body&& body) {
  const Entry entry = enter(call, device);
  if (entry.injected) return static_cast<cudnnStatus_t>(entry.code);
  if (entry.device_error != cudaSuccess) return CUDNN_STATUS_EXECUTION_FAILED_CUDART;
  return body();
}

}  // namespace gpipe::emulated
