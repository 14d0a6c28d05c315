// cuDNN: handles, descriptors, texts of errors.
#include "tests/emulated_cuda/cudnn_types.h"
#include "tests/emulated_cuda/stream.h"

#include <algorithm>
#include <cstring>

namespace gpipe::emulated {

namespace {

thread_local std::string thread_message;

template <class Descriptor>
bool is_set(const char* call, const char* argument, const Descriptor& descriptor) {
  if (!descriptor.set) refuse(call, CUDNN_STATUS_BAD_PARAM, std::string(argument) + " was created, but not set");
  return descriptor.set;
}

template <class Body>
cudnnStatus_t create(const char* call, Body** out, Kind kind, int device) {
  if (!out) return refuse(call, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the pointer to fill is null");
  auto body = std::make_shared<Body>();
  *out = body.get();
  Lock lock;
  add_object(body.get(), kind, device, body);
  return CUDNN_STATUS_SUCCESS;
}

/// Applies `set` to a live object. BAD_PARAM without one.
template <class Body, class Set>
cudnnStatus_t change(const char* call, Body* handle, Kind kind, Set&& set) {
  Lock lock;
  const Object* object = find_object(call, "descriptor", handle, kind);
  if (!object) return CUDNN_STATUS_BAD_PARAM;
  set(*static_cast<Body*>(object->body.get()));
  return CUDNN_STATUS_SUCCESS;
}

template <class Body>
cudnnStatus_t destroy(const char* call, Body* handle, Kind kind) {
  Lock lock;
  return end_object(call, "descriptor", handle, kind) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

/// SUCCESS for four positive sizes of a layout and type that are emulated.
cudnnStatus_t check_sizes(const char* call, cudnnTensorFormat_t format, cudnnDataType_t type, const int (&sizes)[4]) {
  if (*std::min_element(sizes, sizes + 4) <= 0) return refuse(call, CUDNN_STATUS_BAD_PARAM, "a size is not positive");
  if (static_cast<unsigned>(format) > CUDNN_TENSOR_NCHW_VECT_C)
    return refuse(call, CUDNN_STATUS_BAD_PARAM, "the format is unknown");
  if (static_cast<unsigned>(type) > CUDNN_DATA_COMPLEX_FP64) return refuse(call, CUDNN_STATUS_BAD_PARAM, "the type is unknown");
  if (format == CUDNN_TENSOR_NCHW_VECT_C) return refuse(call, CUDNN_STATUS_NOT_SUPPORTED, "NCHW_VECT_C is not emulated");
  if (type != CUDNN_DATA_FLOAT && type != CUDNN_DATA_HALF && type != CUDNN_DATA_BFLOAT16) {
    return refuse(call, CUDNN_STATUS_NOT_SUPPORTED, "types other than f32, f16 and bf16 are not emulated");
  }
  double elements = 1;
  for (const int size : sizes) elements *= size;
  if (elements >= 0x1p31) return refuse(call, CUDNN_STATUS_NOT_SUPPORTED, "more than 2 Giga elements");
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t set_stream(cudnnHandle_t handle, cudaStream_t stream) {
  Lock lock;
  const Object* object = find_object("cudnnSetStream", "handle", handle, Kind::cudnn);
  if (!object) return CUDNN_STATUS_BAD_PARAM;
  auto& context = *static_cast<cudnnContext*>(object->body.get());
  const CUstream_st* found = find_stream("cudnnSetStream", stream);
  if (!found) return CUDNN_STATUS_BAD_PARAM;
  if (found->device != context.device) {
    report("cudnnSetStream: the handle is of device " + std::to_string(context.device) + ", the stream of device " +
           std::to_string(found->device));
    return CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH;
  }
  context.stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

cudnnStatus_t refuse(const char* call, cudnnStatus_t status, const std::string& why) {
  thread_message = std::string(call) + ": " + why;
  report_unlocked(thread_message);
  return status;
}

bool read_object(const char* call, const char* argument, cudnnHandle_t handle, cudnnContext& out) {
  return read(call, argument, handle, Kind::cudnn, out);
}
bool read_object(const char* call, const char* argument, cudnnTensorDescriptor_t descriptor, cudnnTensorStruct& out) {
  return read(call, argument, descriptor, Kind::tensor, out) && is_set(call, argument, out);
}
bool read_object(const char* call, const char* argument, cudnnFilterDescriptor_t descriptor, cudnnFilterStruct& out) {
  return read(call, argument, descriptor, Kind::filter, out) && is_set(call, argument, out);
}
bool read_object(const char* call, const char* argument, cudnnConvolutionDescriptor_t descriptor, cudnnConvolutionStruct& out) {
  return read(call, argument, descriptor, Kind::convolution, out) && is_set(call, argument, out);
}

int device_of_cudnn(cudnnHandle_t handle) {
  ensure_ready();
  Lock lock;
  const auto found = state().objects.find(handle);
  return found != state().objects.end() ? found->second.device : current_device();
}

}  // namespace gpipe::emulated

using namespace gpipe::emulated;

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  const Entry entry = enter("cudnnCreate", current_device());
  if (entry.injected) return static_cast<cudnnStatus_t>(entry.code);
  if (entry.device_error != cudaSuccess) return CUDNN_STATUS_NOT_INITIALIZED;
  const cudnnStatus_t status = create("cudnnCreate", handle, Kind::cudnn, current_device());
  if (status == CUDNN_STATUS_SUCCESS) (*handle)->device = current_device();
  return status;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  const Entry entry = enter("cudnnDestroy", device_of_cudnn(handle));
  if (entry.injected) return static_cast<cudnnStatus_t>(entry.code);
  return destroy("cudnnDestroy", handle, Kind::cudnn);
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  return cudnn_call("cudnnSetStream", device_of_cudnn(handle), [&] { return set_stream(handle, stream); });
}

size_t cudnnGetVersion() {
  enter("cudnnGetVersion", -1);
  return CUDNN_VERSION;
}

const char* cudnnGetErrorString(cudnnStatus_t status) {
  enter("cudnnGetErrorString", -1);
  switch (status) {
    case CUDNN_STATUS_SUCCESS: return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_NOT_INITIALIZED: return "CUDNN_STATUS_NOT_INITIALIZED";
    case CUDNN_STATUS_BAD_PARAM: return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_BAD_PARAM_NULL_POINTER: return "CUDNN_STATUS_BAD_PARAM_NULL_POINTER";
    case CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT: return "CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT";
    case CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH: return "CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH";
    case CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH: return "CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH";
    case CUDNN_STATUS_NOT_SUPPORTED: return "CUDNN_STATUS_NOT_SUPPORTED";
    case CUDNN_STATUS_INTERNAL_ERROR: return "CUDNN_STATUS_INTERNAL_ERROR";
    case CUDNN_STATUS_EXECUTION_FAILED: return "CUDNN_STATUS_EXECUTION_FAILED";
    case CUDNN_STATUS_EXECUTION_FAILED_CUDART: return "CUDNN_STATUS_EXECUTION_FAILED_CUDART";
    default: return "CUDNN_UNKNOWN_STATUS";
  }
}

void cudnnGetLastErrorString(char* message, size_t max_size) {
  enter("cudnnGetLastErrorString", -1);
  if (!message || max_size == 0) return;
  const size_t length = std::min(thread_message.size(), max_size - 1);
  std::memcpy(message, thread_message.data(), length);
  message[length] = 0;
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* descriptor) {
  return cudnn_call("cudnnCreateTensorDescriptor", -1,
                    [&] { return create("cudnnCreateTensorDescriptor", descriptor, Kind::tensor, 0); });
}

cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t descriptor) {
  return cudnn_call("cudnnDestroyTensorDescriptor", -1,
                    [&] { return destroy("cudnnDestroyTensorDescriptor", descriptor, Kind::tensor); });
}

cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t descriptor, cudnnTensorFormat_t format, cudnnDataType_t type,
                                         int n, int c, int h, int w) {
  const char* call = "cudnnSetTensor4dDescriptor";
  return cudnn_call(call, -1, [&] {
    const cudnnStatus_t status = check_sizes(call, format, type, {n, c, h, w});
    if (status != CUDNN_STATUS_SUCCESS) return status;
    return change(call, descriptor, Kind::tensor, [&](cudnnTensorStruct& body) { body = {true, format, type, n, c, h, w}; });
  });
}

cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* descriptor) {
  return cudnn_call("cudnnCreateFilterDescriptor", -1,
                    [&] { return create("cudnnCreateFilterDescriptor", descriptor, Kind::filter, 0); });
}

cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t descriptor) {
  return cudnn_call("cudnnDestroyFilterDescriptor", -1,
                    [&] { return destroy("cudnnDestroyFilterDescriptor", descriptor, Kind::filter); });
}

cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t descriptor, cudnnDataType_t type, cudnnTensorFormat_t format,
                                         int k, int c, int h, int w) {
  const char* call = "cudnnSetFilter4dDescriptor";
  return cudnn_call(call, -1, [&] {
    const cudnnStatus_t status = check_sizes(call, format, type, {k, c, h, w});
    if (status != CUDNN_STATUS_SUCCESS) return status;
    return change(call, descriptor, Kind::filter, [&](cudnnFilterStruct& body) { body = {true, format, type, k, c, h, w}; });
  });
}

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* descriptor) {
  return cudnn_call("cudnnCreateConvolutionDescriptor", -1,
                    [&] { return create("cudnnCreateConvolutionDescriptor", descriptor, Kind::convolution, 0); });
}

cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t descriptor) {
  return cudnn_call("cudnnDestroyConvolutionDescriptor", -1,
                    [&] { return destroy("cudnnDestroyConvolutionDescriptor", descriptor, Kind::convolution); });
}

cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t descriptor, int pad_h, int pad_w, int u, int v,
                                              int dilation_h, int dilation_w, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t compute) {
  const char* call = "cudnnSetConvolution2dDescriptor";
  return cudnn_call(call, -1, [&] {
    if (pad_h < 0 || pad_w < 0) return refuse(call, CUDNN_STATUS_BAD_PARAM, "a padding is negative");
    if (u <= 0 || v <= 0) return refuse(call, CUDNN_STATUS_BAD_PARAM, "a stride is not positive");
    if (dilation_h <= 0 || dilation_w <= 0) return refuse(call, CUDNN_STATUS_BAD_PARAM, "a dilation is not positive");
    if (mode != CUDNN_CONVOLUTION && mode != CUDNN_CROSS_CORRELATION) {
      return refuse(call, CUDNN_STATUS_BAD_PARAM, "the mode is unknown");
    }
    if (compute != CUDNN_DATA_FLOAT) return refuse(call, CUDNN_STATUS_NOT_SUPPORTED, "sums other than f32 are not emulated");
    return change(call, descriptor, Kind::convolution, [&](cudnnConvolutionStruct& body) {
      body = {true, pad_h, pad_w, u, v, dilation_h, dilation_w, mode, compute, body.math, body.groups};
    });
  });
}

cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t descriptor, cudnnMathType_t math) {
  const char* call = "cudnnSetConvolutionMathType";
  return cudnn_call(call, -1, [&] {
    if (static_cast<unsigned>(math) > CUDNN_FMA_MATH) return refuse(call, CUDNN_STATUS_BAD_PARAM, "the math type is unknown");
    return change(call, descriptor, Kind::convolution, [&](cudnnConvolutionStruct& body) { body.math = math; });
  });
}

cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t descriptor, int groups) {
  const char* call = "cudnnSetConvolutionGroupCount";
  return cudnn_call(call, -1, [&] {
    if (groups < 1) return refuse(call, CUDNN_STATUS_BAD_PARAM, "the number of groups is not positive");
    return change(call, descriptor, Kind::convolution, [&](cudnnConvolutionStruct& body) { body.groups = groups; });
  });
}
