// add: sum of two or more values of one shape, from left to right.
#include "layers/support.h"

namespace gpipe::layers {
namespace {

class AddOperation final : public Operation {
 public:
  explicit AddOperation(device::Backend& backend) : backend_(backend) {}

  Needs needs() const override { return {.in_place = true, .gradient_in_place = true, .pass_through = true}; }
  void forward(const ForwardCall& call, const NodeState&) override {
    backend_.add(call.inputs[0], call.inputs[1], call.output);
    for (size_t i = 2; i < call.inputs.size(); ++i) {
      GP_CHECK(call.inputs[i].data != call.output.data);  // it would have been overwritten by now
      backend_.add(call.output, call.inputs[i], call.output);
    }
  }
  void backward_input(const BackwardCall& call, const NodeState&) override {
    for (const TensorView& dx : call.dx)
      if (dx && dx.data != call.dy.data) backend_.copy(call.dy, dx);
  }

 private:
  device::Backend& backend_;
};

class Add final : public Layer {
 public:
  Shape output_shape(std::span<const Shape> inputs) const override {
    for (const Shape& input : inputs)
      if (input != inputs[0]) throw base::ConfigError("add needs inputs of one shape, found {} and {}", inputs[0], input);
    return inputs[0];
  }
  Cost cost(std::span<const Shape> inputs, const Shape& output) const override {
    return {output.elements() * (static_cast<int64_t>(inputs.size()) - 1), 0, 0};
  }
  std::unique_ptr<Operation> plan(const PlanContext& context) const override {
    return std::make_unique<AddOperation>(context.backend);
  }
};

}  // namespace

const LayerType& add_layer() {
  static const LayerType type{
      .name = "add",
      .summary = "sum of values of one shape",
      .min_inputs = 2,
      .max_inputs = 64,
      .make = make_plain<Add>,
      .fields = no_fields,
  };
  return type;
}

}  // namespace gpipe::layers
