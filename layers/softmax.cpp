// softmax: over the channels of each position: torch.nn.Softmax(-1).
#include "layers/support.h"

namespace gpipe::layers {
namespace {

class SoftmaxOperation final : public Operation {
 public:
  explicit SoftmaxOperation(std::unique_ptr<device::SoftmaxOp> op) : op_(std::move(op)) {}

  Needs needs() const override { return {.output = true, .in_place = true, .gradient_in_place = true}; }
  void forward(const ForwardCall& call, const NodeState&) override { op_->forward(call.inputs[0], call.output); }
  void backward_input(const BackwardCall& call, const NodeState&) override {
    if (call.dx[0]) op_->backward(call.output, call.dy, call.dx[0]);
  }

 private:
  std::unique_ptr<device::SoftmaxOp> op_;
};

class Softmax final : public Layer {
 public:
  Shape output_shape(std::span<const Shape> inputs) const override {
    if (inputs[0].rank() == 0) throw base::ConfigError("softmax needs channels, its input is a number");
    return inputs[0];
  }
  Cost cost(std::span<const Shape>, const Shape& output) const override {
    return {20 * output.elements(), 4 * output.elements(), 0};
  }
  std::unique_ptr<Operation> plan(const PlanContext& context) const override {
    return std::make_unique<SoftmaxOperation>(context.backend.softmax());
  }
};

}  // namespace

const LayerType& softmax_layer() {
  static const LayerType type{
      .name = "softmax",
      .summary = "exponentials of the channels, divided by their sum",
      .make = make_plain<Softmax>,
      .fields = no_fields,
  };
  return type;
}

}  // namespace gpipe::layers
