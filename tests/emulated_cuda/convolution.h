// The arithmetic of 2-d convolutions: plain sums whose order depends on the algorithm.
#pragma once

#include "tests/emulated_cuda/numbers.h"

#include <cstddef>
#include <cstdint>

namespace gpipe::emulated {

enum class Direction { forward, backward_data, backward_filter };

/// In which order the products of one output element are added. Two orders give two roundings, as two algorithms do.
enum class SumOrder { filter_first, channel_first, backwards, random };

/// x: n images of c channels, h x w; filter: k filters of c / groups channels, r x s; y: n images of k channels, oh x ow.
struct ConvolutionShape {
  int64_t n = 0, c = 0, h = 0, w = 0;
  int64_t k = 0, r = 0, s = 0;
  int64_t oh = 0, ow = 0;
  int64_t pad_h = 0, pad_w = 0, stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1;
  int64_t groups = 1;
  bool flipped = false;  // the filter is mirrored (CUDNN_CONVOLUTION)
  bool nhwc = false;     // else NCHW; the filter likewise KRSC or KCRS
  Number type = Number::f32;
};

struct ConvolutionTask {
  const char* call = "";
  Direction direction = Direction::forward;
  ConvolutionShape shape;
  const void* x = nullptr;  // the three tensors; the one the direction writes is `out`
  const void* filter = nullptr;
  const void* y = nullptr;
  void* out = nullptr;
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
  float alpha = 1;
  float beta = 0;
  Rounding rounding = Rounding::none;
  SumOrder order = SumOrder::filter_first;
  uint64_t random = 0;  // of SumOrder::random
};

/// out = alpha * result + beta * out; out is not read when beta is 0. Runs on a stream.
void convolve(const ConvolutionTask& task);

}  // namespace gpipe::emulated
