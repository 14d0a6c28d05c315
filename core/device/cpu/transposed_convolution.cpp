// The transposed convolution is a convolution run backwards: its forward is that one's backward on the data, its backward on
// the data that one's forward, and its weight gradient that one's with the two values exchanged.
#include "core/device/cpu/columns.h"
#include "core/device/cpu/ops.h"

namespace gpipe::device::cpu {
namespace {

ConvolutionSpec without_bias(ConvolutionSpec spec) {
  spec.bias = false;
  spec.input_gradient = true;  // our forward
  return spec;
}

class TransposedConvolution final : public WeightedOp {
 public:
  TransposedConvolution(const TransposedConvolutionSpec& spec, const Batches& batches, const Team& team)
      : channels_(spec.in_channels), team_(team), inner_(make_convolution(without_bias(spec), batches, team)) {}

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
    if (!bias) return;
    const float* shift = bias.f32();
    float* out = y.f32();
    each_row(team_.threads, y.elements() / channels_, channels_, [=, channels = channels_](int64_t row) {
#pragma GCC ivdep
      for (int64_t c = 0; c < channels; ++c) out[row * channels + c] += shift[c];
    });
  }
  void backward_input(const TensorView& dy, const Weight& w, const TensorView& dx, std::byte* workspace) override {
    inner_->forward(dy, w, {}, dx, workspace);
  }
  void backward_weight(const TensorView& x, const TensorView& dy, const WeightGradient& dw, const TensorView& dbias,
                       bool accumulate, std::byte* workspace) override {
    inner_->backward_weight(dy, x, dw, {}, accumulate, workspace);
    if (dbias) sum_columns(team_.threads, dy.f32(), dy.elements() / channels_, channels_, dbias.f32(), accumulate);
  }

 private:
  int64_t channels_;
  const Team& team_;
  std::unique_ptr<WeightedOp> inner_;
};

}  // namespace

std::unique_ptr<WeightedOp> make_transposed_convolution(const TransposedConvolutionSpec& spec, const Batches& batches,
                                                        const Team& team) {
  return std::make_unique<TransposedConvolution>(spec, batches, team);
}

}  // namespace gpipe::device::cpu
