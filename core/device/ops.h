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

#include "core/device/functors/update.h"
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

/// The transpose of the convolution `ConvolutionSpec` describes, which it runs backwards: x is that one's output
/// [N,H',W',O], y its input [N,H,W,C], weight [O, C/groups, kH, kW], bias [C]. `input_gradient` and `bias` are the op's own.
using TransposedConvolutionSpec = ConvolutionSpec;

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
  enum class Kind { relu, leaky_relu, gelu, gelu_tanh, silu, sigmoid, tanh, clip, scale };
  Kind kind;
  double slope = 0.01;       // leaky_relu; scale: the factor
  double low = 0, high = 0;  // clip
};

/// Element by element; y may be the memory of x, dx that of dy.
class ActivationOp : public Op {
 public:
  /// Which tensor backward reads: the output (relu, leaky_relu with slope >= 0, sigmoid, tanh) or the input (gelu, silu, clip).
  /// The backward of scale is its forward on dy.
  virtual bool backward_uses_output() const = 0;
  virtual void forward(const TensorView& x, const TensorView& y) = 0;
  virtual void backward(const TensorView& x_or_y, const TensorView& dy, const TensorView& dx) = 0;
};

/// What is kept or zeroed as one: each element, each channel (last axis) of a sample, each sample.
struct DropoutSpec {
  enum class Grain { element, channel, sample };
  Grain grain = Grain::element;
};

/// Which numbers a dropout draws: a pure function of these, the sample's index in the mini-batch and the grain's in the sample.
struct DropoutKey {
  uint64_t seed = 0;
  int64_t step = 0;
  int64_t node = 0;
  int64_t first_sample = 0;  // index in the mini-batch of the first row
  double p = 0.5;            // probability of zeroing, below 1; the rest is scaled by 1 / (1 - p)
};

/// y = mask(key) * x / (1 - p); the mask is drawn again in backward, never stored. y may be the memory of x.
class DropoutOp : public Op {
 public:
  virtual void apply(const TensorView& x, const TensorView& y, const DropoutKey& key) = 0;  // forward and backward alike
};

/// y[n, i0, i1, ...] = x[n, j...] with j[axes[k]] = i[k] + offset[k]; where such a j is outside of x, `fill`. Covers padding,
/// cropping, slicing and transposing; each is undone by another such spec.
struct RearrangeSpec {
  static constexpr size_t max_axes = Shape::max_rank - 1;
  Shape input, output;                     // of a sample, of the same rank
  std::array<int, max_axes> axes{};        // a permutation
  std::array<int64_t, max_axes> offset{};  // by output axis
  double fill = 0;
};

class RearrangeOp : public Op {
 public:
  virtual void apply(const TensorView& x, const TensorView& y) = 0;
};

/// An image [N,H,W,C] drawn on another grid, channel by channel. `scale`: input positions an output position, [height, width].
struct ResampleSpec {
  enum class Kind { nearest, bilinear, bilinear_align_corners };
  Kind kind;
  int64_t in_height, in_width, channels;
  int64_t out_height, out_width;
  std::array<double, 2> scale;
};

class ResampleOp : public Op {
 public:
  virtual void forward(const TensorView& x, const TensorView& y) = 0;
  virtual void backward(const TensorView& dy, const TensorView& dx, std::byte* workspace) = 0;
};

/// Over the last axis; y may be the memory of x, dx that of dy.
class SoftmaxOp : public Op {
 public:
  virtual void forward(const TensorView& x, const TensorView& y) = 0;
  virtual void backward(const TensorView& y, const TensorView& dy, const TensorView& dx) = 0;
};

/// y = x * scale, scale [channels]; y may be the memory of x.
class ChannelScaleOp : public Op {
 public:
  virtual void apply(const TensorView& x, const TensorView& scale, const TensorView& y) = 0;  // forward and backward alike
  virtual void backward_weight(const TensorView& x, const TensorView& dy, const TensorView& dscale, bool accumulate,
                               std::byte* workspace) = 0;
};

struct CrossEntropySpec {
  int64_t classes;
  int64_t positions = 1;  // targets of a sample
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
  virtual void forward(const TensorView& prediction, const TensorView& target, const TensorView& result,
                       std::byte* workspace) = 0;
  /// dprediction = scale * d(loss of the sample)/d(prediction); it may be the memory of prediction.
  virtual void backward(const TensorView& prediction, const TensorView& target, float scale, const TensorView& dprediction) = 0;
};

/// ids [N, T] i32; table [rows, columns]; y [N, T, columns] = factor * table[id].
struct EmbeddingSpec {
  int64_t rows, columns;
  double factor = 1;
  int64_t padding = -1;  // this id's row gets no gradient; -1: none
};

class EmbeddingOp : public Op {
 public:
  /// Throws DataError for an id outside the table.
  virtual void forward(const TensorView& ids, const TensorView& table, const TensorView& y) = 0;
  /// A row's gradient sums its places in ascending (sample, position) order. Only rows that occur are touched when adding.
  virtual void backward_weight(const TensorView& ids, const TensorView& dy, const TensorView& dtable, bool accumulate) = 0;
};

/// y[n] = x[n] + table for every sample n; the table has a sample's size. y may be the memory of x.
class SampleAddOp : public Op {
 public:
  virtual void forward(const TensorView& x, const TensorView& table, const TensorView& y) = 0;
  /// dtable (+)= the sum of dy over the samples, in ascending order.
  virtual void backward_weight(const TensorView& dy, const TensorView& dtable, bool accumulate) = 0;
};

/// ids, out [N, T] i32: out[n, 0] = start, out[n, t] = ids[n, t - 1], or `padding` where that is negative.
struct ShiftSpec {
  int32_t start, padding;
};
class ShiftOp : public Op {
 public:
  virtual void forward(const TensorView& ids, const TensorView& out) = 0;
};

struct AttentionSpec {
  int64_t heads, head_dim;
  int64_t queries, keys;  // positions
  bool causal = false;    // a query sees the keys up to its own position
  double dropout = 0;     // of the probabilities
  int64_t padding = -1;   // keys whose token is this id are not seen; -1: all are
};

/// Rows [N x positions] with the features of all heads side by side, `stride` elements from one row to the next. Of a head_dim
/// that 4 divides, rows start on 16 bytes.
struct HeadRows {
  float* data = nullptr;
  int64_t stride = 0;
};
struct AttentionInputs {
  HeadRows query, key, value;
  TensorView tokens;              // [N, keys] i32, or a null view
  const DropoutKey* key_of_mask;  // null: nothing is dropped
};

/// context = softmax(query key^T / sqrt(head_dim)) value, head by head; context [N, queries, heads x head_dim]. `logsumexp`
/// [N, heads, queries] is what backward finds the probabilities with. A query that sees no key gets zeros. No call
/// allocates or wants anything of size queries x keys: tile by tile (Dao et al. 2022, arXiv 2205.14135).
class AttentionOp : public Op {
 public:
  virtual void forward(const AttentionInputs& in, const TensorView& context, const TensorView& logsumexp,
                       std::byte* workspace) = 0;
  /// Writes the gradients of query, key and value over them.
  virtual void backward(const AttentionInputs& in, const TensorView& context, const TensorView& logsumexp,
                        const TensorView& dcontext, std::byte* workspace) = 0;
};

/// Joins (split: takes apart) along the last axis; all other extents agree. `parts` in the order of the channels.
class ConcatOp : public Op {
 public:
  virtual void join(std::span<const TensorView> parts, const TensorView& whole) = 0;
  virtual void split(const TensorView& whole, std::span<const TensorView> parts) = 0;
};

/// *sum = the sum of the squares of the elements of `of`, in double; `sum` is in memory of the device.
struct SumOfSquares {
  TensorView of;
  double* sum;
};

/// A parameter to update: weight, gradient and as many slots as the rule has (one more with UpdateCommon::averaging), all of the
/// weight's size.
struct ParameterUpdate {
  Update rule;
  TensorView weight, gradient;
  std::span<const TensorView> slots;
};

}  // namespace gpipe::device
