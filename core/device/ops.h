// The op families of a device. Each op is described once (spec + the batch sizes it will meet), refuses then with a
// reason (ConfigError) if the device cannot do it, says how much workspace it wants, and is run many times.
//
// Rules that hold for every op:
// - Layout is channels-last: images [N, H, W, C], vectors [N, F]. Weights are given in PyTorch's layout (OIHW, [out, in]).
// - The batch size of a call is read off its views; it must be one of those described.
// - Outputs are overwritten. Parameter gradients are overwritten when `accumulate` is false, else added to; bit for
//   bit, "overwrite then add" in ascending micro-batch order is the only sum that is ever formed.
// - An op holds nothing of a micro-batch; it may be used by the one thread of its stage only.
// - `workspace` points to at least workspace_bytes(), aligned to 64 bytes, contents undefined before and after.
// - Same inputs, same batch size, same number of threads: same bits, whenever and wherever in memory it runs.
#pragma once

#include "core/tensor/tensor.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace gpipe::device {

using tensor::Shape;
using tensor::TensorView;

/// The batch sizes that an op will be called with, largest first (an uneven mini-batch has two).
using Batches = std::vector<int64_t>;

class Op {
 public:
  Op() = default;
  Op(const Op&) = delete;
  Op& operator=(const Op&) = delete;
  virtual ~Op() = default;
  virtual size_t workspace_bytes() const { return 0; }
  /// The vendor's names of what runs underneath, for benches and tests: "brgconv:avx512_core jit:avx512_core"; or "".
  virtual std::string implementation() const { return {}; }
};

/// The weight of a WeightedOp as its calls get it: `packed` is null when packed_weight_bytes() is 0.
struct Weight {
  TensorView plain;
  std::byte* packed = nullptr;
};
/// Where its gradient goes: `packed` is null when packed_gradient_bytes() is 0.
struct WeightGradient {
  TensorView plain;
  std::byte* packed = nullptr;
};

/// An op with a weight and perhaps a bias (a null view where there is none): convolution, linear. The device may keep the weight
/// in a layout of its own. `packed_*` = 0 means: the plain one is used as it is.
class WeightedOp : public Op {
 public:
  virtual size_t packed_weight_bytes() const = 0;    // all packed copies (forward, backward) of the weight
  virtual size_t packed_gradient_bytes() const = 0;  // accumulator of the weight gradient in the device's layout
  /// Refreshes the packed copies; once after each update.
  virtual void pack_weight(const TensorView& weight, std::byte* packed, std::byte* workspace) = 0;
  /// Accumulator -> plain gradient; once a mini-batch. Only called when packed_gradient_bytes() > 0.
  virtual void unpack_gradient(const std::byte* packed_gradient, const TensorView& gradient, std::byte* workspace) = 0;

  virtual void forward(const TensorView& x, const Weight& w, const TensorView& bias, const TensorView& y,
                       std::byte* workspace) = 0;
  virtual void backward_input(const TensorView& dy, const Weight& w, const TensorView& dx, std::byte* workspace) = 0;
  virtual void backward_weight(const TensorView& x, const TensorView& dy, const WeightGradient& dw, const TensorView& dbias,
                               bool accumulate, std::byte* workspace) = 0;
};

/// x [N,H,W,C], weight [O, C/groups, kH, kW], bias [O], y [N,H',W',O]. Cross-correlation, as in PyTorch.
struct ConvolutionSpec {
  int64_t in_height, in_width, in_channels;
  int64_t out_height, out_width, out_channels;
  std::array<int64_t, 2> kernel, stride, dilation;
  int64_t pad_top, pad_bottom, pad_left, pad_right;
  int64_t groups = 1;
  bool bias = true;
  bool input_gradient = true;  // false: backward_input will never be called
};

/// x [N, in], weight [out, in], bias [out], y [N, out]. N counts rows: samples, or samples times positions.
struct LinearSpec {
  int64_t in_features, out_features;
  bool bias = true;
  bool input_gradient = true;
};

struct PoolSpec {
  enum class Kind { max, average, average_without_padding };
  Kind kind;
  int64_t in_height, in_width, channels;
  int64_t out_height, out_width;
  std::array<int64_t, 2> kernel, stride;
  int64_t pad_top, pad_bottom, pad_left, pad_right;
};

/// x [N,H,W,C] -> y [N,H',W',C]. Max pooling keeps where each maximum was in `saved` (saved_bytes of the batch size).
class PoolOp : public Op {
 public:
  virtual size_t saved_bytes(int64_t batch) const = 0;
  virtual void forward(const TensorView& x, const TensorView& y, std::byte* saved, std::byte* workspace) = 0;
  virtual void backward(const TensorView& dy, const std::byte* saved, const TensorView& dx, std::byte* workspace) = 0;
};

struct BatchNormSpec {
  Shape sample;  // [..., C]
  double epsilon = 1e-5;
  bool affine = true;
};

/// Normalises every channel over samples and positions. scale, shift, mean, variance: [C] f32; variance is the biased one.
class BatchNormOp : public Op {
 public:
  /// Statistics of this micro-batch: written to mean and variance, and used.
  virtual void forward_train(const TensorView& x, const TensorView& scale, const TensorView& shift, const TensorView& y,
                             const TensorView& mean, const TensorView& variance, std::byte* workspace) = 0;
  /// Given statistics: y = (x - mean) / sqrt(variance + epsilon) * scale + shift.
  virtual void forward_eval(const TensorView& x, const TensorView& scale, const TensorView& shift, const TensorView& mean,
                            const TensorView& variance, const TensorView& y, std::byte* workspace) = 0;
  /// dscale and dshift are null views when not affine. dx may be the memory of dy.
  virtual void backward(const TensorView& x, const TensorView& dy, const TensorView& scale, const TensorView& mean,
                        const TensorView& variance, const TensorView& dx, const TensorView& dscale, const TensorView& dshift,
                        bool accumulate, std::byte* workspace) = 0;

  /// Moving averages over a mini-batch: `state` (state_bytes) gathers the micro-batches in the order of the calls, by a
  /// numerically stable merge (Chan et al. 1979) that weighs each by its rows (samples times positions); `first` starts anew.
  virtual size_t state_bytes() const = 0;
  virtual void gather(const TensorView& mean, const TensorView& variance, int64_t rows, bool first, std::byte* state) = 0;
  /// running = (1 - momentum) * running + momentum * gathered, with the unbiased variance, as PyTorch does.
  virtual void update_running(const std::byte* state, double momentum, const TensorView& running_mean,
                              const TensorView& running_variance) = 0;
};

/// x [rows, positions, channels]: each row is normalised by its own statistics, over all positions and the channels of a
/// group. One position: layer norm; `center` false: RMS norm (no mean); as many groups as channels: instance norm.
struct GroupNormSpec {
  int64_t positions = 1, channels = 1, groups = 1;  // groups divide the channels
  double epsilon = 1e-5;
  bool center = true;
};

/// scale, shift: [channels], or null views. `saved` keeps mean and inverse deviation of every row and group.
class GroupNormOp : public Op {
 public:
  virtual size_t saved_bytes(int64_t rows) const = 0;
  virtual void forward(const TensorView& x, const TensorView& scale, const TensorView& shift, const TensorView& y,
                       std::byte* saved) = 0;
  virtual void backward_input(const TensorView& x, const TensorView& dy, const TensorView& scale, const std::byte* saved,
                              const TensorView& dx) = 0;
  /// dshift may be a null view.
  virtual void backward_weight(const TensorView& x, const TensorView& dy, const std::byte* saved, const TensorView& dscale,
                               const TensorView& dshift, bool accumulate, std::byte* workspace) = 0;
};

struct ActivationSpec {
  enum class Kind { relu, leaky_relu, gelu, gelu_tanh, silu, sigmoid, tanh };
  Kind kind;
  double slope = 0.01;  // leaky_relu
};

/// Element by element; y may be the memory of x, dx that of dy.
class ActivationOp : public Op {
 public:
  /// Which tensor backward reads: the output (relu, leaky_relu with slope >= 0, sigmoid, tanh) or the input (gelu, silu).
  virtual bool backward_uses_output() const = 0;
  virtual void forward(const TensorView& x, const TensorView& y) = 0;
  virtual void backward(const TensorView& x_or_y, const TensorView& dy, const TensorView& dx) = 0;
};

struct DropoutSpec {
  double p = 0.5;  // probability of zeroing; the rest is scaled by 1 / (1 - p)
};

/// Which numbers a dropout draws: a pure function of these, the sample's index in the mini-batch and the element.
struct DropoutKey {
  uint64_t seed = 0;
  int64_t step = 0;
  int64_t node = 0;
  int64_t first_sample = 0;  // index in the mini-batch of the first row
};

/// y = mask(key) * x / (1 - p); the mask is drawn again in backward, never stored. y may be the memory of x.
class DropoutOp : public Op {
 public:
  virtual void apply(const TensorView& x, const TensorView& y, const DropoutKey& key) = 0;  // forward and backward alike
};

struct CrossEntropySpec {
  int64_t classes;
  double label_smoothing = 0.0;
};

/// A target of this class counts for nothing: padding (torch.nn.CrossEntropyLoss, ignore_index).
constexpr int32_t k_ignored_target = -100;

/// Prediction and target of a sample to `result` [N, 2] f32: its loss, and its hits.
/// Cross-entropy: logits [N, ..., C], targets [N, ...] i32, summed over a sample's targets; a hit is when the largest logit is
/// the target's; ignored targets give 0 and no gradient. Mean squared error: both [N, ...] f32, the mean over a sample's elements
/// of (p - t)^2; never a hit.
class LossOp : public Op {
 public:
  virtual void forward(const TensorView& prediction, const TensorView& target, const TensorView& result) = 0;
  /// dprediction = scale * d(loss of the sample)/d(prediction); it may be the memory of prediction.
  virtual void backward(const TensorView& prediction, const TensorView& target, float scale, const TensorView& dprediction) = 0;
};

/// Joins (split: takes apart) along the last axis; all other extents agree. `parts` in the order of the channels.
class ConcatOp : public Op {
 public:
  virtual void join(std::span<const TensorView> parts, const TensorView& whole) = 0;
  virtual void split(const TensorView& whole, std::span<const TensorView> parts) = 0;
};

}  // namespace gpipe::device
