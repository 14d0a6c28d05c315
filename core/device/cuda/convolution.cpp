// Convolution on cuDNN, channels-last. cuDNN wants the weight as [O, kH, kW, C / groups]: a packed copy, unless that is how the
// plain one lies anyway; the gradient is summed in the same layout. Bias and its gradient are our kernels.
//
// In bf16 and f16 all that cuDNN reads and writes is as narrow: it multiplies rounded copies of x, y and the weight, sums in f32,
// and rounds the outcome (y, dx, or the weight gradient of one micro-batch) once more, which is then widened to f32.
#include "core/device/cuda/convolution.h"

#include "core/base/error.h"
#include "core/device/cuda/helpers.h"
#include "core/device/cuda/narrow.h"
#include "core/device/cuda/ops.h"
#include "core/device/transposed_convolution.h"

#include <algorithm>

namespace gpipe::device::cuda {
namespace {

class CudnnConvolution final : public WeightedOp {
 public:
  CudnnConvolution(const ConvolutionSpec& spec, const Batches& batches, Context& context)
      : spec_(spec), inner_(needs_frame(spec) ? framed(spec) : spec), context_(context) {
    context.queue().use();
    describe();
    plan_copies();
    for (int64_t batch : batches) {
      plans_.emplace_back(inner_, filter_, convolution_, batch, context);
      const ConvolutionChoice& choice = plans_.back().choice;
      const size_t bias = spec.bias ? sum_columns_bytes(batch * spec.out_height * spec.out_width, spec.out_channels) : 0;
      const size_t copies = copies_bytes(batch);
      workspace_ = std::max({workspace_, copies + aligned(choice.forward_bytes), copies + aligned(choice.input_bytes),
                             copies + weight_bytes() + aligned(choice.weight_bytes), bias});
    }
  }

  size_t workspace_bytes() const override { return workspace_; }
  std::string implementation() const override {
    std::string text;
    for (const ConvolutionPlan& plan : plans_) text += plan.choice.text(spec_.input_gradient) + " ";
    return "cudnn " + text;
  }
  size_t packed_weight_bytes() const override { return to_packed_ || narrows() ? weight_bytes() : 0; }
  size_t packed_gradient_bytes() const override { return to_packed_ ? aligned(4 * static_cast<size_t>(weight_elements())) : 0; }

  void pack_weight(const TensorView& weight, std::byte* packed, std::byte*) override {
    if (to_packed_)
      to_packed_->apply(weight, {packed, packed_shape()});
    else if (narrows())
      narrow(context_.queue(), context_.precision(), weight.f32(), weight_elements(), packed);
  }
  void unpack_gradient(const std::byte* packed_gradient, const TensorView& gradient, std::byte*) override {
    if (to_plain_) to_plain_->apply({const_cast<std::byte*>(packed_gradient), packed_shape()}, gradient);
  }

  void forward(const TensorView& x, const Weight& w, const TensorView& bias, const TensorView& y, std::byte* workspace) override {
    const ConvolutionPlan& plan = of(x);
    const std::byte* image = read_x(x, workspace);
    std::byte* outcome = narrows() ? workspace + x_bytes(plan.batch) : y.data;
    const float one = 1, zero = 0;
    const int64_t channels = spec_.out_channels, rows = y.elements() / channels;
    const Queue& queue = context_.queue();
    queue.use();
    check(cudnnConvolutionForward(context_.dnn(), &one, plan.x.get(), image, filter_.get(), weight_of(w), convolution_.get(),
                                  plan.choice.forward, workspace + copies_bytes(plan.batch), plan.choice.forward_bytes, &zero,
                                  plan.y.get(), outcome),
          "cudnnConvolutionForward", context_.device());
    if (narrows() && bias)
      widen(queue, context_.precision(), outcome, bias.f32(), rows, channels, y.f32());
    else if (narrows())
      widen(queue, context_.precision(), outcome, y.elements(), y.f32());
    else if (bias)
      add_bias(queue, bias.f32(), rows, channels, y.f32());
  }

  void backward_input(const TensorView& dy, const Weight& w, const TensorView& dx, std::byte* workspace) override {
    const ConvolutionPlan& plan = of(dy);
    std::byte* outcome = from_frame_ || narrows() ? workspace : dx.data;
    const std::byte* from_dy = read(dy, workspace + x_bytes(plan.batch));
    const float one = 1, zero = 0;
    context_.queue().use();
    check(cudnnConvolutionBackwardData(context_.dnn(), &one, filter_.get(), weight_of(w), plan.y.get(), from_dy,
                                       convolution_.get(), plan.choice.input, workspace + copies_bytes(plan.batch),
                                       plan.choice.input_bytes, &zero, plan.x.get(), outcome),
          "cudnnConvolutionBackwardData", context_.device());
    if (from_frame_)
      from_frame_->apply({outcome, frame_shape(plan.batch)}, dx);
    else if (narrows())
      widen(context_.queue(), context_.precision(), outcome, dx.elements(), dx.f32());
  }

  // A later micro-batch's gradient is made apart and then added, so that the sum does not depend on how cuDNN would add; a
  // narrow one always is, and the sum is f32.
  void backward_weight(const TensorView& x, const TensorView& dy, const WeightGradient& dw, const TensorView& dbias,
                       bool accumulate, std::byte* workspace) override {
    const ConvolutionPlan& plan = of(x);
    const std::byte* image = read_x(x, workspace);
    const std::byte* from_dy = read(dy, workspace + x_bytes(plan.batch));
    std::byte* sum = to_packed_ ? dw.packed : dw.plain.data;
    std::byte* part = accumulate || narrows() ? workspace + copies_bytes(plan.batch) : sum;
    const float one = 1, zero = 0;
    context_.queue().use();
    check(cudnnConvolutionBackwardFilter(context_.dnn(), &one, plan.x.get(), image, plan.y.get(), from_dy, convolution_.get(),
                                         plan.choice.weight, workspace + copies_bytes(plan.batch) + weight_bytes(),
                                         plan.choice.weight_bytes, &zero, filter_.get(), part),
          "cudnnConvolutionBackwardFilter", context_.device());
    float* sums = reinterpret_cast<float*>(sum);
    if (narrows())
      widen(context_.queue(), context_.precision(), part, weight_elements(), sums, accumulate);
    else if (accumulate)
      add_part(context_.queue(), reinterpret_cast<float*>(part), weight_elements(), sums);
    if (dbias)
      sum_columns(context_.queue(), dy.f32(), dy.elements() / spec_.out_channels, spec_.out_channels, dbias.f32(), accumulate,
                  workspace);
  }

 private:
  void describe() {
    const int device = context_.device();
    const auto to_int = [](int64_t extent) { return static_cast<int>(extent); };
    filter_ = make<FilterDescription>(cudnnCreateFilterDescriptor, "cudnnCreateFilterDescriptor", device);
    check(cudnnSetFilter4dDescriptor(filter_.get(), context_.dnn_type(), CUDNN_TENSOR_NHWC, to_int(spec_.out_channels),
                                     to_int(spec_.in_channels / spec_.groups), to_int(spec_.kernel[0]), to_int(spec_.kernel[1])),
          "cudnnSetFilter4dDescriptor", device);
    convolution_ = make<ConvolutionDescription>(cudnnCreateConvolutionDescriptor, "cudnnCreateConvolutionDescriptor", device);
    check(cudnnSetConvolution2dDescriptor(convolution_.get(), to_int(inner_.pad_top), to_int(inner_.pad_left),
                                          to_int(spec_.stride[0]), to_int(spec_.stride[1]), to_int(spec_.dilation[0]),
                                          to_int(spec_.dilation[1]), CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
          "cudnnSetConvolution2dDescriptor", device);
    check(cudnnSetConvolutionGroupCount(convolution_.get(), to_int(spec_.groups)), "cudnnSetConvolutionGroupCount", device);
    const cudnnMathType_t math = narrows() ? CUDNN_TENSOR_OP_MATH : context_.tf32() ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH;
    check(cudnnSetConvolutionMathType(convolution_.get(), math), "cudnnSetConvolutionMathType", device);  // the default has TF32
  }

  void plan_copies() {
    const Queue& queue = context_.queue();
    const Precision wide = Precision::f32, stored = narrows() ? context_.precision() : wide;  // by cuDNN
    const int64_t in = spec_.in_channels / spec_.groups, height = spec_.kernel[0], width = spec_.kernel[1];
    if (in > 1 && height * width > 1) {
      to_packed_ =
          make_rearrange({.input = {in, height, width}, .output = {height, width, in}, .axes = {1, 2, 0}}, queue, wide, stored);
      to_plain_ = make_rearrange({.input = {height, width, in}, .output = {in, height, width}, .axes = {2, 0, 1}}, queue);
    }
    if (!needs_frame(spec_)) return;
    const Shape image{spec_.in_height, spec_.in_width, spec_.in_channels}, frame = frame_shape(1).sample();
    const int64_t top = spec_.pad_top, left = spec_.pad_left;
    to_frame_ =
        make_rearrange({.input = image, .output = frame, .axes = {0, 1, 2}, .offset = {-top, -left, 0}}, queue, wide, stored);
    from_frame_ =
        make_rearrange({.input = frame, .output = image, .axes = {0, 1, 2}, .offset = {top, left, 0}}, queue, stored, wide);
  }

  int64_t weight_elements() const {
    return spec_.out_channels * (spec_.in_channels / spec_.groups) * spec_.kernel[0] * spec_.kernel[1];
  }
  bool narrows() const { return context_.narrow(); }
  /// Of so many elements as cuDNN stores them.
  size_t bytes(int64_t count) const { return narrows() ? narrow_bytes(count) : aligned(4 * static_cast<size_t>(count)); }
  size_t weight_bytes() const { return bytes(weight_elements()); }
  Shape packed_shape() const { return {spec_.out_channels, spec_.kernel[0], spec_.kernel[1], spec_.in_channels / spec_.groups}; }
  Shape frame_shape(int64_t batch) const { return {batch, inner_.in_height, inner_.in_width, inner_.in_channels}; }
  // The workspace begins with what cuDNN reads and writes in place of x and y (or their gradients): x in its frame, or rounded;
  // y rounded.
  size_t x_bytes(int64_t batch) const { return to_frame_ || narrows() ? bytes(frame_shape(batch).elements()) : 0; }
  size_t copies_bytes(int64_t batch) const {
    return x_bytes(batch) + (narrows() ? bytes(batch * spec_.out_height * spec_.out_width * spec_.out_channels) : 0);
  }
  const std::byte* weight_of(const Weight& w) const { return to_packed_ || narrows() ? w.packed : w.plain.data; }
  /// x, or y's gradient, as cuDNN reads it: where it lies, or a copy at `to`.
  const std::byte* read_x(const TensorView& x, std::byte* to) const {
    if (!to_frame_) return read(x, to);
    to_frame_->apply(x, {to, frame_shape(x.shape[0])});
    return to;
  }
  const std::byte* read(const TensorView& factor, std::byte* to) const {
    if (!narrows()) return factor.data;
    narrow(context_.queue(), context_.precision(), factor.f32(), factor.elements(), to);
    return to;
  }

  const ConvolutionPlan& of(const TensorView& view) const {
    for (const ConvolutionPlan& plan : plans_)
      if (plan.batch == view.shape[0]) return plan;
    throw base::BugError("convolution: batch size {} was not planned", view.shape[0]);
  }

  ConvolutionSpec spec_, inner_;  // inner_: as cuDNN gets it
  Context& context_;
  FilterDescription filter_;
  ConvolutionDescription convolution_;
  std::vector<ConvolutionPlan> plans_;
  std::unique_ptr<RearrangeOp> to_packed_, to_plain_, to_frame_, from_frame_;
  size_t workspace_ = 0;
};

class CudaTransposedConvolution final : public TransposedConvolution {
 public:
  CudaTransposedConvolution(const TransposedConvolutionSpec& spec, const Batches& batches, Context& context)
      : TransposedConvolution(spec, make_convolution(inner_spec(spec), batches, context)),
        queue_(context.queue()),
        workspace_(TransposedConvolution::workspace_bytes()) {
    if (!spec.bias) return;
    for (int64_t batch : batches)
      workspace_ = std::max(workspace_, sum_columns_bytes(batch * spec.in_height * spec.in_width, spec.in_channels));
  }

  size_t workspace_bytes() const override { return workspace_; }

 protected:
  void add_bias(const float* bias, int64_t rows, int64_t channels, float* y) override {
    cuda::add_bias(queue_, bias, rows, channels, y);
  }
  void sum_rows(const float* dy, int64_t rows, int64_t channels, float* sums, bool accumulate, std::byte* workspace) override {
    sum_columns(queue_, dy, rows, channels, sums, accumulate, workspace);
  }

 private:
  const Queue& queue_;
  size_t workspace_;
};

}  // namespace

std::unique_ptr<WeightedOp> make_convolution(const ConvolutionSpec& spec, const Batches& batches, Context& context) {
  if (spec.groups > 1 && spec.groups == spec.in_channels)
    return make_depthwise(spec, batches, context.queue(), context.precision());
  return std::make_unique<CudnnConvolution>(spec, batches, context);
}
std::unique_ptr<WeightedOp> make_transposed_convolution(const TransposedConvolutionSpec& spec, const Batches& batches,
                                                        Context& context) {
  return std::make_unique<CudaTransposedConvolution>(spec, batches, context);
}

}  // namespace gpipe::device::cuda
