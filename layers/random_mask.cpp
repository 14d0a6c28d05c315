#include "layers/random_mask.h"

namespace gpipe::layers {
namespace {

class MaskOperation final : public Operation {
 public:
  MaskOperation(device::DropoutSpec::Grain grain, const DropRate& rate, device::Backend& backend)
      : rate_(rate), backend_(backend), op_(backend.dropout({grain})) {}

  Needs needs() const override { return {.in_place = true, .gradient_in_place = true}; }
  void forward(const ForwardCall& call, const NodeState&) override { apply(call.pass, call.inputs[0], call.output); }
  void backward_input(const BackwardCall& call, const NodeState&) override {
    if (call.dx[0]) apply(call.pass, call.dy, call.dx[0]);
  }

 private:
  void apply(const graph::Pass& pass, const TensorView& from, const TensorView& to) {
    const double p = rate_.ramp ? rate_.p * pass.progress : rate_.p;
    if (pass.training && p > 0)
      op_->apply(from, to, {pass.seed, pass.step, pass.node, pass.first_sample, p});
    else if (from.data != to.data)
      backend_.copy(from, to);
  }

  DropRate rate_;
  device::Backend& backend_;
  std::unique_ptr<device::DropoutOp> op_;
};

}  // namespace

std::unique_ptr<Operation> plan_random_mask(device::DropoutSpec::Grain grain, const DropRate& rate, const PlanContext& context) {
  return std::make_unique<MaskOperation>(grain, rate, context.backend);
}

}  // namespace gpipe::layers
