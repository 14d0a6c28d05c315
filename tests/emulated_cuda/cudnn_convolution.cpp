// cuDNN: 2-d convolution, forward and both gradients.
#include "tests/emulated_cuda/cudnn_algorithms.h"
#include "tests/emulated_cuda/memory.h"
#include "tests/emulated_cuda/stream.h"

#include <algorithm>
#include <atomic>

namespace gpipe::emulated {

namespace {

size_t bytes_of_type(cudnnDataType_t type) { return type == CUDNN_DATA_FLOAT ? 4 : 2; }

/// Reads the descriptors of a call and checks that they fit together.
cudnnStatus_t read_problem(ConvolutionProblem& p, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t filter,
                           cudnnConvolutionDescriptor_t convolution, cudnnTensorDescriptor_t y) {
  if (!read_object(p.call, p.direction == Direction::backward_data ? "dxDesc" : "xDesc", x, p.x) ||
      !read_object(p.call, p.direction == Direction::backward_filter ? "dwDesc" : "wDesc", filter, p.filter) ||
      !read_object(p.call, "convDesc", convolution, p.convolution) ||
      !read_object(p.call, p.direction == Direction::forward ? "yDesc" : "dyDesc", y, p.y)) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  return check_problem(p);
}

/// SUCCESS if the algorithm exists and can do it.
cudnnStatus_t check_algorithm(const ConvolutionProblem& p, int algorithm) {
  if (algorithm < 0 || algorithm >= algorithm_count(p.direction)) {
    return refuse(p.call, CUDNN_STATUS_BAD_PARAM, "algorithm " + std::to_string(algorithm) + " does not exist");
  }
  const std::string why = unsupported(p, algorithm);
  return why.empty() ? CUDNN_STATUS_SUCCESS : refuse(p.call, CUDNN_STATUS_NOT_SUPPORTED, why);
}

/// A live handle whose device is current.
cudnnStatus_t check_handle(const char* call, cudnnHandle_t handle, cudnnContext& context) {
  if (!read_object(call, "handle", handle, context)) return CUDNN_STATUS_BAD_PARAM;
  if (context.device == current_device()) return CUDNN_STATUS_SUCCESS;
  return refuse(call, CUDNN_STATUS_EXECUTION_FAILED,
                "the handle is of device " + std::to_string(context.device) + ", but the current device is " +
                    std::to_string(current_device()));
}

/// The memory of a call.
struct Buffers {
  const void* x;
  const void* filter;
  const void* y;
  void* workspace;
  size_t workspace_bytes;
};

std::vector<Range> ranges_of(const ConvolutionProblem& p, const Buffers& memory) {
  const size_t size = bytes_of_type(p.x.type);
  const bool data = p.direction == Direction::backward_data;
  const bool filter = p.direction == Direction::backward_filter;
  return {{data ? "dx" : "x", memory.x, static_cast<size_t>(p.x.elements()) * size, size},
          {filter ? "dw" : "w", memory.filter, static_cast<size_t>(p.filter.elements()) * size, size},
          {p.direction == Direction::forward ? "y" : "dy", memory.y, static_cast<size_t>(p.y.elements()) * size, size},
          {"workSpace", memory.workspace, memory.workspace_bytes, 16}};
}

const void* output_of(Direction direction, const Buffers& memory) {
  switch (direction) {
    case Direction::forward: return memory.y;
    case Direction::backward_data: return memory.x;
    case Direction::backward_filter: break;
  }
  return memory.filter;
}

/// Reports memory that may not be used so. With Lock.
bool check_buffers(const ConvolutionProblem& p, const Buffers& memory, int device) {
  const std::vector<Range> ranges = ranges_of(p, memory);
  bool good = check_ranges(p.call, device, ranges);
  const void* out = output_of(p.direction, memory);
  for (size_t i = 0; good && i < ranges.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const auto* a = static_cast<const std::byte*>(ranges[i].pointer);
      const auto* b = static_cast<const std::byte*>(ranges[j].pointer);
      const bool written = a == out || b == out || i == 3;
      if (!written || ranges[i].bytes == 0 || a + ranges[i].bytes <= b || b + ranges[j].bytes <= a) continue;
      report(std::string(p.call) + ": " + ranges[j].argument + " and " + ranges[i].argument + " overlap");
      good = false;
    }
  }
  return good;
}

cudnnStatus_t find_stream_of(const ConvolutionProblem& p, const cudnnContext& context, CUstream_st** stream) {
  Lock lock;
  *stream = find_stream(p.call, context.stream);
  return *stream ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

cudnnStatus_t execute(const ConvolutionProblem& p, cudnnHandle_t handle, const void* alpha, const void* beta, int algorithm,
                      const Buffers& memory) {
  cudnnContext context;
  if (const cudnnStatus_t status = check_handle(p.call, handle, context); status != CUDNN_STATUS_SUCCESS) return status;
  if (const cudnnStatus_t status = check_algorithm(p, algorithm); status != CUDNN_STATUS_SUCCESS) return status;
  if (!alpha || !beta) return refuse(p.call, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "alpha or beta is null");
  const size_t wanted = workspace_of(p, algorithm);
  if (memory.workspace_bytes < wanted) {
    return refuse(
        p.call, CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT,
        "the workspace has " + std::to_string(memory.workspace_bytes) + " bytes, the algorithm wants " + std::to_string(wanted));
  }
  static std::atomic<uint64_t> runs{0};
  ConvolutionTask task;
  task.call = p.call;
  task.direction = p.direction;
  task.shape = shape_of(p);
  task.x = memory.x;
  task.filter = memory.filter;
  task.y = memory.y;
  task.out = const_cast<void*>(output_of(p.direction, memory));
  task.workspace = wanted ? memory.workspace : nullptr;
  task.workspace_bytes = wanted;
  task.alpha = *static_cast<const float*>(alpha);
  task.beta = *static_cast<const float*>(beta);
  task.rounding = rounding_of(p);
  task.order = order_of(p.direction, algorithm);
  task.random = mix(state().options.seed, runs.fetch_add(1, std::memory_order_relaxed));
  CUstream_st* stream = nullptr;
  if (const cudnnStatus_t status = find_stream_of(p, context, &stream); status != CUDNN_STATUS_SUCCESS) return status;
  auto work = make_task(p.call, [task] { convolve(task); });
  Lock lock;
  if (!check_buffers(p, memory, context.device)) {
    break_device(context.device, cudaErrorIllegalAddress);
    return CUDNN_STATUS_EXECUTION_FAILED;
  }
  push(*stream, std::move(work), {memory.x, memory.filter, memory.y, task.workspace});
  return CUDNN_STATUS_SUCCESS;
}

template <class Perf>
void fill_results(const std::vector<AlgorithmEntry>& entries, const ConvolutionProblem& p, int requested, int* returned,
                  Perf* results) {
  *returned = std::min<int>(requested, static_cast<int>(entries.size()));
  for (int i = 0; i < *returned; ++i) {
    const AlgorithmEntry& entry = entries[static_cast<size_t>(i)];
    Perf made = {};
    made.algo = static_cast<decltype(made.algo)>(entry.algorithm);
    made.status = entry.status;
    made.time = entry.time_ms;
    made.memory = entry.workspace;
    made.determinism = entry.is_deterministic ? CUDNN_DETERMINISTIC : CUDNN_NON_DETERMINISTIC;
    made.mathType = p.convolution.math;
    results[i] = made;
  }
}

template <class Perf>
cudnnStatus_t suggest(const ConvolutionProblem& p, int requested, int* returned, Perf* results) {
  if (!returned || !results) return refuse(p.call, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the place for the results is null");
  if (requested < 1) return refuse(p.call, CUDNN_STATUS_BAD_PARAM, "no algorithm was requested");
  fill_results(list_algorithms(p, false, 0), p, requested, returned, results);
  return CUDNN_STATUS_SUCCESS;
}

/// Measures: waits for the device, and leaves arbitrary values in the output and the workspace.
template <class Perf>
cudnnStatus_t measure(const ConvolutionProblem& p, cudnnHandle_t handle, const Buffers& memory, int requested, int* returned,
                      Perf* results) {
  cudnnContext context;
  if (const cudnnStatus_t status = check_handle(p.call, handle, context); status != CUDNN_STATUS_SUCCESS) return status;
  if (!returned || !results) return refuse(p.call, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the place for the results is null");
  if (requested < 1) return refuse(p.call, CUDNN_STATUS_BAD_PARAM, "no algorithm was requested");
  CUstream_st* stream = nullptr;
  if (const cudnnStatus_t status = find_stream_of(p, context, &stream); status != CUDNN_STATUS_SUCCESS) return status;
  Range out;
  {
    Lock lock;
    if (!check_buffers(p, memory, context.device)) {
      break_device(context.device, cudaErrorIllegalAddress);
      return CUDNN_STATUS_EXECUTION_FAILED;
    }
    for (const Range& range : ranges_of(p, memory)) {
      if (range.pointer == output_of(p.direction, memory)) out = range;
    }
  }
  auto work = make_task(p.call, [out, memory] {
    poison(const_cast<void*>(out.pointer), out.bytes);
    if (memory.workspace) poison(memory.workspace, memory.workspace_bytes);
  });
  {
    Lock lock;
    push(*stream, std::move(work), {memory.x, memory.filter, memory.y, memory.workspace});
  }
  wait_on_host(*mark(*stream));
  fill_results(list_algorithms(p, true, memory.workspace_bytes), p, requested, returned, results);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t workspace_size(const ConvolutionProblem& p, int algorithm, size_t* bytes) {
  if (const cudnnStatus_t status = check_algorithm(p, algorithm); status != CUDNN_STATUS_SUCCESS) return status;
  if (!bytes) return refuse(p.call, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the size to fill is null");
  *bytes = workspace_of(p, algorithm);
  return CUDNN_STATUS_SUCCESS;
}

/// A call on a convolution: its descriptors are read and checked, then `body` is called with the problem.
template <class Body>
cudnnStatus_t convolution_call(const char* call, Direction direction, cudnnHandle_t handle, cudnnTensorDescriptor_t x,
                               cudnnFilterDescriptor_t filter, cudnnConvolutionDescriptor_t convolution,
                               cudnnTensorDescriptor_t y, Body&& body) {
  return cudnn_call(call, device_of_cudnn(handle), [&] {
    cudnnContext context;
    if (!read_object(call, "handle", handle, context)) return CUDNN_STATUS_BAD_PARAM;
    ConvolutionProblem problem;
    problem.call = call;
    problem.direction = direction;
    const cudnnStatus_t status = read_problem(problem, x, filter, convolution, y);
    return status == CUDNN_STATUS_SUCCESS ? body(problem) : status;
  });
}

cudnnStatus_t output_dim(cudnnConvolutionDescriptor_t convolution, cudnnTensorDescriptor_t input, cudnnFilterDescriptor_t filter,
                         int* n, int* c, int* h, int* w) {
  const char* call = "cudnnGetConvolution2dForwardOutputDim";
  cudnnConvolutionStruct conv;
  cudnnTensorStruct x;
  cudnnFilterStruct f;
  if (!read_object(call, "convDesc", convolution, conv) || !read_object(call, "inputTensorDesc", input, x) ||
      !read_object(call, "filterDesc", filter, f)) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  if (!n || !c || !h || !w) return refuse(call, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "a size to fill is null");
  if (x.c != f.c * conv.groups) return refuse(call, CUDNN_STATUS_BAD_PARAM, "the channels of input and filter do not fit");
  *n = x.n;
  *c = f.k;
  *h = output_size(x.h, conv.pad_h, f.h, conv.dilation_h, conv.stride_h);
  *w = output_size(x.w, conv.pad_w, f.w, conv.dilation_w, conv.stride_w);
  if (*h <= 0 || *w <= 0) return refuse(call, CUDNN_STATUS_BAD_PARAM, "the filter is larger than the padded image");
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

}  // namespace gpipe::emulated

using namespace gpipe::emulated;

cudnnStatus_t cudnnGetConvolution2dForwardOutputDim(const cudnnConvolutionDescriptor_t convolution,
                                                    const cudnnTensorDescriptor_t input, const cudnnFilterDescriptor_t filter,
                                                    int* n, int* c, int* h, int* w) {
  return cudnn_call("cudnnGetConvolution2dForwardOutputDim", -1,
                    [&] { return output_dim(convolution, input, filter, n, c, h, w); });
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t handle, const cudnnTensorDescriptor_t x,
                                                     const cudnnFilterDescriptor_t w, const cudnnConvolutionDescriptor_t conv,
                                                     const cudnnTensorDescriptor_t y, const int requested, int* returned,
                                                     cudnnConvolutionFwdAlgoPerf_t* results) {
  return convolution_call("cudnnGetConvolutionForwardAlgorithm_v7", Direction::forward, handle, x, w, conv, y,
                          [&](const ConvolutionProblem& p) { return suggest(p, requested, returned, results); });
}

cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t handle, const cudnnFilterDescriptor_t w,
                                                          const cudnnTensorDescriptor_t dy,
                                                          const cudnnConvolutionDescriptor_t conv,
                                                          const cudnnTensorDescriptor_t dx, const int requested, int* returned,
                                                          cudnnConvolutionBwdDataAlgoPerf_t* results) {
  return convolution_call("cudnnGetConvolutionBackwardDataAlgorithm_v7", Direction::backward_data, handle, dx, w, conv, dy,
                          [&](const ConvolutionProblem& p) { return suggest(p, requested, returned, results); });
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnnHandle_t handle, const cudnnTensorDescriptor_t x,
                                                            const cudnnTensorDescriptor_t dy,
                                                            const cudnnConvolutionDescriptor_t conv,
                                                            const cudnnFilterDescriptor_t dw, const int requested, int* returned,
                                                            cudnnConvolutionBwdFilterAlgoPerf_t* results) {
  return convolution_call("cudnnGetConvolutionBackwardFilterAlgorithm_v7", Direction::backward_filter, handle, x, dw, conv, dy,
                          [&](const ConvolutionProblem& p) { return suggest(p, requested, returned, results); });
}

cudnnStatus_t cudnnFindConvolutionForwardAlgorithmEx(cudnnHandle_t handle, const cudnnTensorDescriptor_t x_desc, const void* x,
                                                     const cudnnFilterDescriptor_t w_desc, const void* w,
                                                     const cudnnConvolutionDescriptor_t conv,
                                                     const cudnnTensorDescriptor_t y_desc, void* y, const int requested,
                                                     int* returned, cudnnConvolutionFwdAlgoPerf_t* results, void* workspace,
                                                     size_t workspace_bytes) {
  return convolution_call("cudnnFindConvolutionForwardAlgorithmEx", Direction::forward, handle, x_desc, w_desc, conv, y_desc,
                          [&](const ConvolutionProblem& p) {
                            return measure(p, handle, {x, w, y, workspace, workspace_bytes}, requested, returned, results);
                          });
}

cudnnStatus_t cudnnFindConvolutionBackwardDataAlgorithmEx(cudnnHandle_t handle, const cudnnFilterDescriptor_t w_desc,
                                                          const void* w, const cudnnTensorDescriptor_t dy_desc, const void* dy,
                                                          const cudnnConvolutionDescriptor_t conv,
                                                          const cudnnTensorDescriptor_t dx_desc, void* dx, const int requested,
                                                          int* returned, cudnnConvolutionBwdDataAlgoPerf_t* results,
                                                          void* workspace, size_t workspace_bytes) {
  return convolution_call("cudnnFindConvolutionBackwardDataAlgorithmEx", Direction::backward_data, handle, dx_desc, w_desc, conv,
                          dy_desc, [&](const ConvolutionProblem& p) {
                            return measure(p, handle, {dx, w, dy, workspace, workspace_bytes}, requested, returned, results);
                          });
}

cudnnStatus_t cudnnFindConvolutionBackwardFilterAlgorithmEx(cudnnHandle_t handle, const cudnnTensorDescriptor_t x_desc,
                                                            const void* x, const cudnnTensorDescriptor_t dy_desc, const void* dy,
                                                            const cudnnConvolutionDescriptor_t conv,
                                                            const cudnnFilterDescriptor_t dw_desc, void* dw, const int requested,
                                                            int* returned, cudnnConvolutionBwdFilterAlgoPerf_t* results,
                                                            void* workspace, size_t workspace_bytes) {
  return convolution_call("cudnnFindConvolutionBackwardFilterAlgorithmEx", Direction::backward_filter, handle, x_desc, dw_desc,
                          conv, dy_desc, [&](const ConvolutionProblem& p) {
                            return measure(p, handle, {x, dw, dy, workspace, workspace_bytes}, requested, returned, results);
                          });
}

cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t handle, const cudnnTensorDescriptor_t x,
                                                      const cudnnFilterDescriptor_t w, const cudnnConvolutionDescriptor_t conv,
                                                      const cudnnTensorDescriptor_t y, cudnnConvolutionFwdAlgo_t algorithm,
                                                      size_t* bytes) {
  return convolution_call("cudnnGetConvolutionForwardWorkspaceSize", Direction::forward, handle, x, w, conv, y,
                          [&](const ConvolutionProblem& p) { return workspace_size(p, algorithm, bytes); });
}

cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(cudnnHandle_t handle, const cudnnFilterDescriptor_t w,
                                                           const cudnnTensorDescriptor_t dy,
                                                           const cudnnConvolutionDescriptor_t conv,
                                                           const cudnnTensorDescriptor_t dx,
                                                           cudnnConvolutionBwdDataAlgo_t algorithm, size_t* bytes) {
  return convolution_call("cudnnGetConvolutionBackwardDataWorkspaceSize", Direction::backward_data, handle, dx, w, conv, dy,
                          [&](const ConvolutionProblem& p) { return workspace_size(p, algorithm, bytes); });
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(cudnnHandle_t handle, const cudnnTensorDescriptor_t x,
                                                             const cudnnTensorDescriptor_t dy,
                                                             const cudnnConvolutionDescriptor_t conv,
                                                             const cudnnFilterDescriptor_t dw,
                                                             cudnnConvolutionBwdFilterAlgo_t algorithm, size_t* bytes) {
  return convolution_call("cudnnGetConvolutionBackwardFilterWorkspaceSize", Direction::backward_filter, handle, x, dw, conv, dy,
                          [&](const ConvolutionProblem& p) { return workspace_size(p, algorithm, bytes); });
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha, const cudnnTensorDescriptor_t x_desc,
                                      const void* x, const cudnnFilterDescriptor_t w_desc, const void* w,
                                      const cudnnConvolutionDescriptor_t conv, cudnnConvolutionFwdAlgo_t algorithm,
                                      void* workspace, size_t workspace_bytes, const void* beta,
                                      const cudnnTensorDescriptor_t y_desc, void* y) {
  return convolution_call("cudnnConvolutionForward", Direction::forward, handle, x_desc, w_desc, conv, y_desc,
                          [&](const ConvolutionProblem& p) {
                            return execute(p, handle, alpha, beta, algorithm, {x, w, y, workspace, workspace_bytes});
                          });
}

cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void* alpha, const cudnnFilterDescriptor_t w_desc,
                                           const void* w, const cudnnTensorDescriptor_t dy_desc, const void* dy,
                                           const cudnnConvolutionDescriptor_t conv, cudnnConvolutionBwdDataAlgo_t algorithm,
                                           void* workspace, size_t workspace_bytes, const void* beta,
                                           const cudnnTensorDescriptor_t dx_desc, void* dx) {
  return convolution_call("cudnnConvolutionBackwardData", Direction::backward_data, handle, dx_desc, w_desc, conv, dy_desc,
                          [&](const ConvolutionProblem& p) {
                            return execute(p, handle, alpha, beta, algorithm, {dx, w, dy, workspace, workspace_bytes});
                          });
}

cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void* alpha, const cudnnTensorDescriptor_t x_desc,
                                             const void* x, const cudnnTensorDescriptor_t dy_desc, const void* dy,
                                             const cudnnConvolutionDescriptor_t conv, cudnnConvolutionBwdFilterAlgo_t algorithm,
                                             void* workspace, size_t workspace_bytes, const void* beta,
                                             const cudnnFilterDescriptor_t dw_desc, void* dw) {
  return convolution_call("cudnnConvolutionBackwardFilter", Direction::backward_filter, handle, x_desc, dw_desc, conv, dy_desc,
                          [&](const ConvolutionProblem& p) {
                            return execute(p, handle, alpha, beta, algorithm, {x, dw, dy, workspace, workspace_bytes});
                          });
}
