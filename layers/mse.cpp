// mse: torch.nn.functional.mse_loss, the mean over a sample's elements averaged over the samples of the whole mini-batch.
// The output of a sample is [its loss, 0].
#include "layers/support.h"

namespace gpipe::layers {
namespace {

class MseOperation final : public Operation {
 public:
  explicit MseOperation(std::unique_ptr<device::MeanSquaredErrorOp> op) : op_(std::move(op)) {}

  Needs needs() const override { return {.inputs = true}; }
  void forward(const ForwardCall& call, const NodeState&) override { op_->forward(call.inputs[0], call.inputs[1], call.output); }
  void backward_input(const BackwardCall& call, const NodeState&) override {
    const float scale = static_cast<float>(1.0 / static_cast<double>(call.pass.mini_batch_samples));
    if (call.dx[0]) op_->backward(call.inputs[0], call.inputs[1], scale, call.dx[0]);
  }

 private:
  std::unique_ptr<device::MeanSquaredErrorOp> op_;
};

class Mse final : public Layer {
 public:
  Shape output_shape(std::span<const Shape> inputs) const override {
    if (inputs[0] != inputs[1])
      throw base::ConfigError("mse needs a prediction and a target of one shape, found {} and {}", inputs[0], inputs[1]);
    return {2};
  }
  Cost cost(std::span<const Shape> inputs, const Shape&) const override {
    return {3 * inputs[0].elements(), 2 * inputs[0].elements(), 0};
  }
  std::unique_ptr<Operation> plan(const PlanContext& context) const override {
    return std::make_unique<MseOperation>(context.backend.mean_squared_error());
  }
};

}  // namespace

const LayerType& mse_layer() {
  static const LayerType type{
      .name = "mse",
      .summary = "loss: mean squared error",
      .min_inputs = 2,
      .max_inputs = 2,
      .is_loss = true,
      .make = make_plain<Mse>,
      .fields = no_fields,
  };
  return type;
}

}  // namespace gpipe::layers
