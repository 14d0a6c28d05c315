#include "layers/loss.h"

namespace gpipe::layers {
namespace {

class LossOperation final : public Operation {
 public:
  explicit LossOperation(std::unique_ptr<device::LossOp> op) : op_(std::move(op)) {}

  Needs needs() const override { return {.inputs = true}; }
  size_t workspace_bytes() const override { return op_->workspace_bytes(); }
  void forward(const ForwardCall& call, const NodeState&) override {
    op_->forward(call.inputs[0], call.inputs[1], call.output, call.workspace);
  }
  void backward_input(const BackwardCall& call, const NodeState&) override {
    const float scale = static_cast<float>(call.pass.loss_weight / static_cast<double>(call.pass.mini_batch_targets));
    if (call.dx[0]) op_->backward(call.inputs[0], call.inputs[1], scale, call.dx[0]);
  }

 private:
  std::unique_ptr<device::LossOp> op_;
};

}  // namespace

std::unique_ptr<Operation> make_loss_operation(std::unique_ptr<device::LossOp> op) {
  return std::make_unique<LossOperation>(std::move(op));
}

}  // namespace gpipe::layers
