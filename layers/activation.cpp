#include "layers/activation.h"

namespace gpipe::layers {
namespace {

class ActivationOperation final : public Operation {
 public:
  explicit ActivationOperation(std::unique_ptr<device::ActivationOp> op) : op_(std::move(op)) {}

  Needs needs() const override {
    const bool output = op_->backward_uses_output();
    return {.output = output, .inputs = !output, .in_place = output, .gradient_in_place = true};
  }
  void forward(const ForwardCall& call, const NodeState&) override { op_->forward(call.inputs[0], call.output); }
  void backward_input(const BackwardCall& call, const NodeState&) override {
    if (call.dx[0]) op_->backward(op_->backward_uses_output() ? call.output : call.inputs[0], call.dy, call.dx[0]);
  }

 private:
  std::unique_ptr<device::ActivationOp> op_;
};

class Activation final : public Layer {
 public:
  Activation(const device::ActivationSpec& spec, int64_t flops) : spec_(spec), flops_(flops) {}

  Shape output_shape(std::span<const Shape> inputs) const override { return inputs[0]; }
  Cost cost(std::span<const Shape>, const Shape& output) const override {
    return {flops_ * output.elements(), flops_ * output.elements(), 0};
  }
  std::unique_ptr<Operation> plan(const PlanContext& context) const override {
    return std::make_unique<ActivationOperation>(context.backend.activation(spec_));
  }

 private:
  device::ActivationSpec spec_;
  int64_t flops_;
};

}  // namespace

std::unique_ptr<Layer> activation_layer(const device::ActivationSpec& spec, int64_t flops) {
  return std::make_unique<Activation>(spec, flops);
}

}  // namespace gpipe::layers
