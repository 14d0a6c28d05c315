// Convolution on oneDNN, channels-last. The weight is kept in the layouts that the forward and the backward-data
// primitives chose, and its gradient is summed in the layout of the backward-weights primitive; the first (largest) batch
// size chooses, the others follow. With factors of fewer bits, x and dy are rounded before each product, the weight when it is
// packed; the bias gradient, which is no product, is then a sum of our own.
#include "core/device/cpu/columns.h"
#include "core/device/cpu/narrowed.h"
#include "core/device/cpu/ops.h"
#include "core/device/cpu/skeletons.h"

#include <functional>

namespace gpipe::device::cpu {
namespace {

Dims activation_dims(int64_t batch, int64_t channels, int64_t height, int64_t width) { return {batch, channels, height, width}; }

class OnednnConvolution final : public WeightedOp {
 public:
  OnednnConvolution(const ConvolutionSpec& spec, const Batches& batches, const Team& team) : spec_(spec), team_(team) {
    const int64_t in = spec.in_channels / spec.groups, out = spec.out_channels / spec.groups;
    weight_dims_ = spec.groups == 1 ? Dims{out, in, spec.kernel[0], spec.kernel[1]}
                                    : Dims{spec.groups, out, in, spec.kernel[0], spec.kernel[1]};
    plain_ = describe(weight_dims_, spec.groups == 1 ? Tag::oihw : Tag::goihw);
    bias_ = spec.bias ? describe({spec.out_channels}, Tag::a) : Description();
    for (int64_t batch : batches) plan(batch);
    plan_copies();
  }

  size_t workspace_bytes() const override { return workspace_; }
  std::string implementation() const override { return implementation_; }
  size_t packed_weight_bytes() const override { return packed_; }
  size_t packed_gradient_bytes() const override { return gradient_ == plain_ ? 0 : bytes_of(gradient_); }

  void pack_weight(const TensorView& weight, std::byte* packed, std::byte* workspace) override {
    const std::byte* factor = rounded_weight_.read(weight.data, workspace);
    workspace += rounded_weight_.bytes();
    if (to_forward_) to_forward_.run(team_.stream, {factor, packed}, workspace);
    if (to_backward_) to_backward_.run(team_.stream, {factor, packed + backward_offset_}, workspace);
  }
  void unpack_gradient(const std::byte* packed_gradient, const TensorView& gradient, std::byte* workspace) override {
    to_plain_.run(team_.stream, {packed_gradient, gradient.data}, workspace);
  }

  void forward(const TensorView& x, const Weight& w, const TensorView& bias, const TensorView& y, std::byte* workspace) override {
    const std::byte* weight = is_packed(forward_) ? w.packed : w.plain.data;
    Plan& plan = of(x);
    const std::byte* factor = plan.x.read(x.data, workspace);
    if (spec_.bias)
      plan.forward.run(team_.stream, {factor, weight, y.data, bias.data}, workspace + narrowed_);
    else
      plan.forward.run(team_.stream, {factor, weight, y.data}, workspace + narrowed_);
  }

  void backward_input(const TensorView& dy, const Weight& w, const TensorView& dx, std::byte* workspace) override {
    const std::byte* weight = is_packed(backward_) ? w.packed + backward_offset_ : w.plain.data;
    Plan& plan = of(dy);
    plan.backward_input.run(team_.stream, {plan.dy.read(dy.data, workspace), weight, dx.data}, workspace + narrowed_);
  }

  void backward_weight(const TensorView& x, const TensorView& dy, const WeightGradient& dw, const TensorView& dbias,
                       bool accumulate, std::byte* workspace) override {
    std::byte* sum = gradient_ == plain_ ? dw.plain.data : dw.packed;
    Plan& plan = of(x);
    const std::byte* from_x = plan.x.read(x.data, workspace);
    const std::byte* from_dy = plan.dy.read(dy.data, workspace + plan.x.bytes());
    workspace += narrowed_;
    std::byte* weight_part = accumulate ? workspace : sum;
    std::byte* bias_part = accumulate ? workspace + bytes_of(gradient_) : dbias.data;
    std::byte* scratchpad = workspace + temporaries_bytes();
    if (fuses_bias_gradient())
      plan.backward_weight.run(team_.stream, {from_x, from_dy, weight_part, bias_part}, scratchpad);
    else
      plan.backward_weight.run(team_.stream, {from_x, from_dy, weight_part}, scratchpad);
    if (spec_.bias && !fuses_bias_gradient())
      sum_columns(team_.threads, dy.f32(), dy.elements() / spec_.out_channels, spec_.out_channels, dbias.f32(), accumulate);
    if (!accumulate) return;
    add_to(sum, weight_part, gradient_.get_size());
    if (fuses_bias_gradient()) add_to(dbias.data, bias_part, dbias.bytes());
  }

 private:
  struct Plan {
    int64_t batch;
    Kernel forward, backward_input, backward_weight;
    Narrowed x, dy;
  };

  bool fuses_bias_gradient() const { return spec_.bias && team_.precision == Precision::f32; }
  /// Whether a primitive that wants the weight so reads a packed copy: of another layout, or rounded.
  bool is_packed(const Description& wanted) const { return team_.rounds_values() || !(wanted == plain_); }
  Description any_weight(Type type) const { return describe(weight_dims_, Tag::any, type); }

  void plan(int64_t batch) {
    const bool first = plans_.empty();
    const ConvolutionSpec& s = spec_;
    const Dims in = activation_dims(batch, s.in_channels, s.in_height, s.in_width);
    const Dims out = activation_dims(batch, s.out_channels, s.out_height, s.out_width);
    const Description plain_x = describe(in, Tag::nhwc), plain_y = describe(out, Tag::nhwc);
    const Description x = describe(in, Tag::nhwc, team_.factors()), dy = describe(out, Tag::nhwc, team_.factors());
    ConvolutionShape shape{
        x,
        first ? any_weight(team_.factors()) : forward_,
        bias_,
        plain_y,
        {s.stride[0], s.stride[1]},
        {s.dilation[0] - 1, s.dilation[1] - 1},
        {s.pad_top, s.pad_left},
        {s.pad_bottom, s.pad_right},
    };
    Plan plan{batch, {}, {}, {}, {plain_x, x, team_}, {plain_y, dy, team_}};
    const auto forward = describe_forward(shape, team_.engine);
    if (first) forward_ = forward.weights_desc();
    implementation_ += std::string(forward.impl_info_str()) + " ";
    if (s.bias)
      plan.forward =
          Kernel::plan(forward, dnnl::convolution_forward(forward), team_.engine,
                       {{DNNL_ARG_SRC, shape.x}, {DNNL_ARG_WEIGHTS, forward_}, {DNNL_ARG_DST, shape.y}, {DNNL_ARG_BIAS, bias_}});
    else
      plan.forward = Kernel::plan(forward, dnnl::convolution_forward(forward), team_.engine,
                                  {{DNNL_ARG_SRC, shape.x}, {DNNL_ARG_WEIGHTS, forward_}, {DNNL_ARG_DST, shape.y}});
    if (s.input_gradient) {
      shape.x = plain_x;
      shape.weight = first ? any_weight(team_.factors()) : backward_;
      shape.y = dy;
      const auto input = describe_backward_input(shape, team_.engine, forward);
      if (first) backward_ = input.weights_desc();
      implementation_ += std::string(input.impl_info_str()) + " ";
      plan.backward_input =
          Kernel::plan(input, dnnl::convolution_backward_data(input), team_.engine,
                       {{DNNL_ARG_DIFF_DST, shape.y}, {DNNL_ARG_WEIGHTS, backward_}, {DNNL_ARG_DIFF_SRC, shape.x}});
    }
    shape.x = x;
    shape.y = dy;
    plan_backward_weight(plan, shape, forward);
    plans_.push_back(std::move(plan));
  }

  void plan_backward_weight(Plan& plan, ConvolutionShape& shape, const dnnl::convolution_forward::primitive_desc& forward) {
    const bool first = plans_.empty();
    shape.weight = first ? any_weight(Type::f32) : gradient_;
    if (!fuses_bias_gradient()) shape.bias = {};
    const auto weight = describe_backward_weight(shape, team_.engine, forward);
    if (first) gradient_ = weight.diff_weights_desc();
    implementation_ += std::string(weight.impl_info_str()) + " ";
    const dnnl::convolution_backward_weights primitive(weight);
    if (fuses_bias_gradient())
      plan.backward_weight = Kernel::plan(weight, primitive, team_.engine,
                                          {{DNNL_ARG_SRC, shape.x},
                                           {DNNL_ARG_DIFF_DST, shape.y},
                                           {DNNL_ARG_DIFF_WEIGHTS, gradient_},
                                           {DNNL_ARG_DIFF_BIAS, bias_}});
    else
      plan.backward_weight =
          Kernel::plan(weight, primitive, team_.engine,
                       {{DNNL_ARG_SRC, shape.x}, {DNNL_ARG_DIFF_DST, shape.y}, {DNNL_ARG_DIFF_WEIGHTS, gradient_}});
  }

  void plan_copies() {
    rounded_weight_ = {plain_, plain_, team_};
    if (is_packed(forward_)) {
      to_forward_ = plan_reorder(plain_, forward_, team_.engine);
      packed_ = bytes_of(forward_);
    }
    if (spec_.input_gradient && is_packed(backward_)) {
      if (backward_ == forward_) {
        backward_offset_ = 0;
      } else {
        to_backward_ = plan_reorder(plain_, backward_, team_.engine);
        backward_offset_ = packed_;
        packed_ += bytes_of(backward_);
      }
    }
    if (!(gradient_ == plain_)) to_plain_ = plan_reorder(gradient_, plain_, team_.engine);
    for (const Kernel* copy : {&to_forward_, &to_backward_, &to_plain_})
      workspace_ = std::max(workspace_, rounded_weight_.bytes() + copy->scratchpad_bytes());
    for (const Plan& plan : plans_) narrowed_ = std::max(narrowed_, plan.x.bytes() + plan.dy.bytes());
    for (const Plan& plan : plans_)
      workspace_ =
          std::max({workspace_, narrowed_ + plan.forward.scratchpad_bytes(), narrowed_ + plan.backward_input.scratchpad_bytes(),
                    narrowed_ + temporaries_bytes() + plan.backward_weight.scratchpad_bytes()});
  }

  // The gradients of one micro-batch before they are added.
  size_t temporaries_bytes() const { return bytes_of(gradient_) + (fuses_bias_gradient() ? bytes_of(bias_) : 0); }

  void add_to(std::byte* sum, const std::byte* part, size_t bytes) const {
    float* out = reinterpret_cast<float*>(sum);
    each_element(team_.threads, static_cast<int64_t>(bytes / sizeof(float)), out, reinterpret_cast<const float*>(part), out,
                 std::plus<float>());
  }

  Plan& of(const TensorView& view) {
    for (Plan& plan : plans_)
      if (plan.batch == view.shape[0]) return plan;
    throw base::BugError("convolution: batch size {} was not planned", view.shape[0]);
  }

  ConvolutionSpec spec_;
  const Team& team_;
  Dims weight_dims_;
  Description plain_, bias_;
  Description forward_, backward_, gradient_;  // the weight as each primitive wants it
  std::vector<Plan> plans_;
  Narrowed rounded_weight_;
  Kernel to_forward_, to_backward_, to_plain_;
  size_t packed_ = 0, backward_offset_ = 0, narrowed_ = 0, workspace_ = 0;
  std::string implementation_;
};

}  // namespace

std::unique_ptr<WeightedOp> make_convolution(const ConvolutionSpec& spec, const Batches& batches, const Team& team) {
  try {
    return std::make_unique<OnednnConvolution>(spec, batches, team);
  } catch (const dnnl::error& error) {
    throw base::ConfigError("oneDNN cannot do this convolution: {} channels to {}, kernel {}x{}, {} groups: {}", spec.in_channels,
                            spec.out_channels, spec.kernel[0], spec.kernel[1], spec.groups, error.what());
  }
}

}  // namespace gpipe::device::cpu
