#include "layers/weighted.h"

namespace gpipe::layers {
namespace {

class WeightedOperation final : public Operation {
 public:
  WeightedOperation(std::unique_ptr<device::WeightedOp> op, bool by_rows) : op_(std::move(op)), by_rows_(by_rows) {}

  Needs needs() const override { return {.inputs = true}; }
  size_t workspace_bytes() const override { return op_->workspace_bytes(); }
  size_t packed_weight_bytes() const override { return op_->packed_weight_bytes(); }
  size_t packed_gradient_bytes() const override { return op_->packed_gradient_bytes(); }
  bool has_backward_weight() const override { return true; }
  bool packs_as_widest() const override { return by_rows_ || Operation::packs_as_widest(); }  // planned for rows_of

  void forward(const ForwardCall& call, const NodeState& state) override {
    op_->forward(seen(call.inputs[0]), weight(state), parameter(state.parameters, 1), seen(call.output), call.workspace);
  }
  void backward_input(const BackwardCall& call, const NodeState& state) override {
    if (call.dx[0]) op_->backward_input(seen(call.dy), weight(state), seen(call.dx[0]), call.workspace);
  }
  void backward_weight(const BackwardCall& call, const NodeState& state) override {
    op_->backward_weight(seen(call.inputs[0]), seen(call.dy), {state.gradients[0], state.packed_gradient},
                         parameter(state.gradients, 1), call.pass.micro > 0, call.workspace);
  }
  void pack(const NodeState& state, std::byte* workspace) override {
    op_->pack_weight(state.parameters[0], state.packed_weight, workspace);
  }
  void finish_gradients(const NodeState& state, std::byte* workspace) override {
    if (op_->packed_gradient_bytes() > 0) op_->unpack_gradient(state.packed_gradient, state.gradients[0], workspace);
  }

 private:
  static device::Weight weight(const NodeState& state) { return {state.parameters[0], state.packed_weight}; }
  TensorView seen(const TensorView& view) const { return by_rows_ ? as_rows(view) : view; }

  std::unique_ptr<device::WeightedOp> op_;
  bool by_rows_;
};

}  // namespace

std::unique_ptr<Operation> make_weighted_operation(std::unique_ptr<device::WeightedOp> op, bool by_rows) {
  return std::make_unique<WeightedOperation>(std::move(op), by_rows);
}

}  // namespace gpipe::layers
