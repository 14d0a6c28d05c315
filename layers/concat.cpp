// concat: values side by side along the last axis (channels), in the order of the inputs.
#include "layers/support.h"

namespace gpipe::layers {
namespace {

class ConcatOperation final : public Operation {
 public:
  explicit ConcatOperation(const PlanContext& context)
      : shapes_(context.inputs.begin(), context.inputs.end()), parts_(shapes_.size()), op_(context.backend.concat()) {}

  Needs needs() const override { return {}; }
  void forward(const ForwardCall& call, const NodeState&) override { op_->join(call.inputs, call.output); }
  void backward_input(const BackwardCall& call, const NodeState&) override {
    const int64_t samples = call.dy.shape[0];
    for (size_t i = 0; i < parts_.size(); ++i) parts_[i] = {call.dx[i].data, shapes_[i].with_batch(samples), DType::f32};
    op_->split(call.dy, parts_);
  }

 private:
  std::vector<Shape> shapes_;      // of a sample
  std::vector<TensorView> parts_;  // made once: a null gradient still needs its shape
  std::unique_ptr<device::ConcatOp> op_;
};

class Concat final : public Layer {
 public:
  Shape output_shape(std::span<const Shape> inputs) const override {
    const Shape& first = inputs[0];
    std::vector<int64_t> extents(first.extents().begin(), first.extents().end());
    if (extents.empty()) throw base::ConfigError("concat needs inputs with a last axis, found {}", first);
    extents.back() = 0;
    for (const Shape& input : inputs) {
      const auto same = [&] {
        return input.rank() == first.rank() &&
               std::equal(first.extents().begin(), first.extents().end() - 1, input.extents().begin());
      };
      if (!same())
        throw base::ConfigError("concat needs inputs that differ in the last axis only, found {} and {}", first, input);
      extents.back() += input.back();
    }
    return Shape(std::span<const int64_t>(extents));
  }
  Cost cost(std::span<const Shape>, const Shape&) const override { return {}; }
  std::unique_ptr<Operation> plan(const PlanContext& context) const override {
    return std::make_unique<ConcatOperation>(context);
  }
};

}  // namespace

const LayerType& concat_layer() {
  static const LayerType type{
      .name = "concat",
      .summary = "values side by side along the last axis",
      .min_inputs = 2,
      .max_inputs = 64,
      .make = make_plain<Concat>,
      .fields = no_fields,
  };
  return type;
}

}  // namespace gpipe::layers
