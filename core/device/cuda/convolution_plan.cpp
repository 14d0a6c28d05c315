#include "core/base/error.h"
#include "core/device/cuda/convolution.h"

namespace gpipe::device::cuda {
namespace {

constexpr int most_found = 16;
constexpr size_t most_workspace = size_t{1} << 30;  // an algorithm that wants more is not worth its memory

TensorDescription describe(int64_t batch, int64_t channels, int64_t height, int64_t width, int device) {
  auto description = make<TensorDescription>(cudnnCreateTensorDescriptor, "cudnnCreateTensorDescriptor", device);
  const auto narrow = [](int64_t extent) { return static_cast<int>(extent); };
  check(cudnnSetTensor4dDescriptor(description.get(), CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, narrow(batch), narrow(channels),
                                   narrow(height), narrow(width)),
        "cudnnSetTensor4dDescriptor", device);
  return description;
}

std::string describe(const ConvolutionSpec& spec) {
  return fmt::format("{} channels to {}, kernel {}x{}, stride {}x{}, dilation {}x{}, {} groups", spec.in_channels,
                     spec.out_channels, spec.kernel[0], spec.kernel[1], spec.stride[0], spec.stride[1], spec.dilation[0],
                     spec.dilation[1], spec.groups);
}

/// The first of cuDNN's suggestions, best first, that gives the same bits every time and stays in f32 (or TF32).
template <class Performance, class Suggest>
Performance choose(const ConvolutionSpec& spec, const char* call, const char* direction, const Context& context,
                   const Suggest& suggest) {
  Performance found[most_found];
  int count = 0;
  const cudnnStatus_t status = suggest(most_found, &count, found);
  if (CUDNN_STATUS_CATEGORY(status) != CUDNN_STATUS_NOT_SUPPORTED) check(status, call, context.device());
  for (int i = 0; i < count; ++i) {
    const bool wide = found[i].mathType == CUDNN_FMA_MATH || found[i].mathType == CUDNN_DEFAULT_MATH ||
                      (context.tf32() && found[i].mathType == CUDNN_TENSOR_OP_MATH);
    if (found[i].status == CUDNN_STATUS_SUCCESS && found[i].determinism == CUDNN_DETERMINISTIC && wide &&
        found[i].memory <= most_workspace)
      return found[i];
  }
  throw base::ConfigError("cuDNN has no deterministic algorithm for the {} of this convolution: {}", direction, describe(spec));
}

/// Pixels that the windows cover along an axis.
int64_t covered(const ConvolutionSpec& spec, size_t axis, int64_t out) {
  return (out - 1) * spec.stride[axis] + (spec.kernel[axis] - 1) * spec.dilation[axis] + 1;
}

}  // namespace

std::string ConvolutionChoice::text(bool input_gradient) const {
  return fmt::format("forward:{} input:{} weight:{}", static_cast<int>(forward),
                     input_gradient ? std::to_string(static_cast<int>(input)) : "-", static_cast<int>(weight));
}

bool needs_frame(const ConvolutionSpec& spec) {
  const auto fits = [&](size_t axis, int64_t in, int64_t out, int64_t before, int64_t after) {
    if (before != after || before < 0) return false;
    const int64_t left = in + 2 * before - ((spec.kernel[axis] - 1) * spec.dilation[axis] + 1);
    return left >= 0 && left / spec.stride[axis] + 1 == out;
  };
  return !fits(0, spec.in_height, spec.out_height, spec.pad_top, spec.pad_bottom) ||
         !fits(1, spec.in_width, spec.out_width, spec.pad_left, spec.pad_right);
}

ConvolutionSpec framed(const ConvolutionSpec& spec) {
  ConvolutionSpec frame = spec;
  frame.in_height = covered(spec, 0, spec.out_height);
  frame.in_width = covered(spec, 1, spec.out_width);
  frame.pad_top = frame.pad_bottom = frame.pad_left = frame.pad_right = 0;
  return frame;
}

ConvolutionPlan::ConvolutionPlan(const ConvolutionSpec& spec, const FilterDescription& filter,
                                 const ConvolutionDescription& convolution, int64_t size, Context& context)
    : batch(size) {
  const int device = context.device();
  const cudnnHandle_t dnn = context.dnn();
  x = describe(batch, spec.in_channels, spec.in_height, spec.in_width, device);
  y = describe(batch, spec.out_channels, spec.out_height, spec.out_width, device);
  const auto forward =
      choose<cudnnConvolutionFwdAlgoPerf_t>(spec, "cudnnGetConvolutionForwardAlgorithm_v7", "forward pass", context,
                                            [&](int wanted, int* count, cudnnConvolutionFwdAlgoPerf_t* found) {
                                              return cudnnGetConvolutionForwardAlgorithm_v7(
                                                  dnn, x.get(), filter.get(), convolution.get(), y.get(), wanted, count, found);
                                            });
  choice.forward = forward.algo;
  check(cudnnGetConvolutionForwardWorkspaceSize(dnn, x.get(), filter.get(), convolution.get(), y.get(), choice.forward,
                                                &choice.forward_bytes),
        "cudnnGetConvolutionForwardWorkspaceSize", device);
  if (spec.input_gradient) {
    const auto input = choose<cudnnConvolutionBwdDataAlgoPerf_t>(
        spec, "cudnnGetConvolutionBackwardDataAlgorithm_v7", "input gradient", context,
        [&](int wanted, int* count, cudnnConvolutionBwdDataAlgoPerf_t* found) {
          return cudnnGetConvolutionBackwardDataAlgorithm_v7(dnn, filter.get(), y.get(), convolution.get(), x.get(), wanted,
                                                             count, found);
        });
    choice.input = input.algo;
    check(cudnnGetConvolutionBackwardDataWorkspaceSize(dnn, filter.get(), y.get(), convolution.get(), x.get(), choice.input,
                                                       &choice.input_bytes),
          "cudnnGetConvolutionBackwardDataWorkspaceSize", device);
  }
  const auto weight = choose<cudnnConvolutionBwdFilterAlgoPerf_t>(
      spec, "cudnnGetConvolutionBackwardFilterAlgorithm_v7", "weight gradient", context,
      [&](int wanted, int* count, cudnnConvolutionBwdFilterAlgoPerf_t* found) {
        return cudnnGetConvolutionBackwardFilterAlgorithm_v7(dnn, x.get(), y.get(), convolution.get(), filter.get(), wanted,
                                                             count, found);
      });
  choice.weight = weight.algo;
  check(cudnnGetConvolutionBackwardFilterWorkspaceSize(dnn, x.get(), y.get(), convolution.get(), filter.get(), choice.weight,
                                                       &choice.weight_bytes),
        "cudnnGetConvolutionBackwardFilterWorkspaceSize", device);
}

}  // namespace gpipe::device::cuda
