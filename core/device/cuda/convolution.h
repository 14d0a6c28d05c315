// What cuDNN runs a convolution with at one batch size. The bits of the results depend on the choice, so it is made once for a
// run (core/device/algorithms.h): every stage, schedule and resume has the same one.
#pragma once

#include "core/device/cuda/context.h"
#include "core/device/ops.h"

#include <string>

namespace gpipe::device::cuda {

struct ConvolutionChoice {
  cudnnConvolutionFwdAlgo_t forward;
  cudnnConvolutionBwdDataAlgo_t input;
  cudnnConvolutionBwdFilterAlgo_t weight;
  size_t forward_bytes, input_bytes, weight_bytes;  // of workspace

  /// "forward:1 input:1 weight:1", the numbers of cuDNN's enumerations; "-" where nothing is run.
  std::string text(bool input_gradient) const;
};

/// The descriptors of one batch size, and the choice made for them.
struct ConvolutionPlan {
  ConvolutionPlan(const ConvolutionSpec& spec, const FilterDescription& filter, const ConvolutionDescription& convolution,
                  int64_t batch, Context& context);

  int64_t batch;
  TensorDescription x, y;
  ConvolutionChoice choice{};
};

/// The spec with an image of just the size that its windows cover, and no padding. cuDNN pads both sides of an axis alike and
/// derives the output's size from that; where that gives another size or place, the image is copied into such a frame first.
ConvolutionSpec framed(const ConvolutionSpec& spec);
/// Whether cuDNN does it without a frame.
bool needs_frame(const ConvolutionSpec& spec);

}  // namespace gpipe::device::cuda
