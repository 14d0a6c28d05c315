// The transposed convolution is a convolution run backwards: its forward is that one's gradient of the input, its gradient of
// the input that one's forward, and its weight gradient that one's with the two values exchanged. Only the bias is its own.
#pragma once

#include "core/device/ops.h"

#include <memory>
#include <utility>

namespace gpipe::device {

/// What the leaves share; each adds what it does with the bias.
class TransposedConvolution : public WeightedOp {
 public:
  /// Of the convolution that is run backwards.
  static ConvolutionSpec inner_spec(ConvolutionSpec spec) {
    spec.bias = false;
    spec.input_gradient = true;  // our forward
    return spec;
  }

  /// `inner`: planned for inner_spec(spec).
  TransposedConvolution(const TransposedConvolutionSpec& spec, std::unique_ptr<WeightedOp> inner)
      : channels_(spec.in_channels), inner_(std::move(inner)) {}

  size_t workspace_bytes() const override { return inner_->workspace_bytes(); }
  std::string implementation() const override { return inner_->implementation(); }
  size_t packed_weight_bytes() const override { return inner_->packed_weight_bytes(); }
  size_t packed_gradient_bytes() const override { return inner_->packed_gradient_bytes(); }
  void pack_weight(const TensorView& weight, std::byte* packed, std::byte* workspace) override {
    inner_->pack_weight(weight, packed, workspace);
  }
  void unpack_gradient(const std::byte* packed_gradient, const TensorView& gradient, std::byte* workspace) override {
    inner_->unpack_gradient(packed_gradient, gradient, workspace);
  }

  void forward(const TensorView& x, const Weight& w, const TensorView& bias, const TensorView& y, std::byte* workspace) override {
    inner_->backward_input(x, w, y, workspace);
    if (bias) add_bias(bias.f32(), y.elements() / channels_, channels_, y.f32());
  }
  void backward_input(const TensorView& dy, const Weight& w, const TensorView& dx, std::byte* workspace) override {
    inner_->forward(dy, w, {}, dx, workspace);
  }
  void backward_weight(const TensorView& x, const TensorView& dy, const WeightGradient& dw, const TensorView& dbias,
                       bool accumulate, std::byte* workspace) override {
    inner_->backward_weight(dy, x, dw, {}, accumulate, workspace);
    if (dbias) sum_rows(dy.f32(), dy.elements() / channels_, channels_, dbias.f32(), accumulate, workspace);
  }

 protected:
  /// y[r, c] += bias[c]
  virtual void add_bias(const float* bias, int64_t rows, int64_t channels, float* y) = 0;
  /// sums[c] (+)= the sum of dy[r, c] over the rows
  virtual void sum_rows(const float* dy, int64_t rows, int64_t channels, float* sums, bool accumulate, std::byte* workspace) = 0;

 private:
  int64_t channels_;
  std::unique_ptr<WeightedOp> inner_;
};

}  // namespace gpipe::device
