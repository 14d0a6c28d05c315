// flatten: all axes into one, in the order of memory. Images are channels-last here, so the order is height, width,
// channel, where PyTorch's is channel, height, width: a linear layer behind it has the same weights in other columns.
#include "layers/support.h"

namespace gpipe::layers {
namespace {

class FlattenOperation final : public Operation {
 public:
  explicit FlattenOperation(device::Backend& backend) : backend_(backend) {}

  Needs needs() const override { return {.in_place = true, .gradient_in_place = true, .pass_through = true}; }
  void forward(const ForwardCall& call, const NodeState&) override {
    if (call.inputs[0].data != call.output.data) backend_.copy(call.inputs[0], call.output);
  }
  void backward_input(const BackwardCall& call, const NodeState&) override {
    if (call.dx[0] && call.dx[0].data != call.dy.data) backend_.copy(call.dy, call.dx[0]);
  }

 private:
  device::Backend& backend_;
};

class Flatten final : public Layer {
 public:
  Shape output_shape(std::span<const Shape> inputs) const override { return {inputs[0].elements()}; }
  Cost cost(std::span<const Shape>, const Shape&) const override { return {}; }
  std::unique_ptr<Operation> plan(const PlanContext& context) const override {
    return std::make_unique<FlattenOperation>(context.backend);
  }
};

}  // namespace

const LayerType& flatten_layer() {
  static const LayerType type{
      .name = "flatten",
      .summary = "all axes into one, order height, width, channel",
      .make = make_plain<Flatten>,
      .fields = no_fields,
  };
  return type;
}

}  // namespace gpipe::layers
