#include "layers/sample_norm.h"

namespace gpipe::layers {
namespace {

class GroupNormOperation final : public Operation {
 public:
  GroupNormOperation(const GroupNormKind& kind, const PlanContext& context) : affine_(kind.affine), center_(kind.center) {
    const Shape& input = context.inputs[0];
    const int64_t channels = input.back();
    rows_a_sample_ = kind.by_position ? input.elements() / channels : 1;
    device::Batches rows = context.batches;
    for (int64_t& count : rows) count *= rows_a_sample_;
    op_ = context.backend.group_norm({.positions = kind.by_position ? 1 : input.elements() / channels,
                                      .channels = channels,
                                      .groups = kind.groups == 0 ? channels : kind.groups,
                                      .epsilon = kind.epsilon,
                                      .center = kind.center},
                                     rows);
  }

  Needs needs() const override { return {.inputs = true}; }
  size_t workspace_bytes() const override { return affine_ ? op_->workspace_bytes() : 0; }
  size_t saved_bytes(int64_t samples) const override { return op_->saved_bytes(samples * rows_a_sample_); }
  bool has_backward_weight() const override { return affine_; }

  void forward(const ForwardCall& call, const NodeState& state) override {
    op_->forward(call.inputs[0], parameter(state.parameters, 0), parameter(state.parameters, 1), call.output, call.saved);
  }
  void backward_input(const BackwardCall& call, const NodeState& state) override {
    if (call.dx[0]) op_->backward_input(call.inputs[0], call.dy, parameter(state.parameters, 0), call.saved, call.dx[0]);
  }
  void backward_weight(const BackwardCall& call, const NodeState& state) override {
    op_->backward_weight(call.inputs[0], call.dy, call.saved, state.gradients[0], center_ ? state.gradients[1] : TensorView{},
                         call.pass.micro > 0, call.workspace);
  }

 private:
  bool affine_, center_;
  int64_t rows_a_sample_ = 1;
  std::unique_ptr<device::GroupNormOp> op_;
};

}  // namespace

GroupNormKind learned(const SampleNormConfig& config, GroupNormKind kind) {
  kind.epsilon = config.eps;
  kind.affine = config.affine;
  kind.scale = config.scale();
  kind.shift = config.shift();
  return kind;
}

Shape group_norm_shape(const GroupNormKind& kind, const Shape& input) {
  if (kind.groups == 0 && input.rank() < 2)
    throw base::ConfigError("{} needs positions to average over, its input is {}", kind.layer, input);
  if (input.rank() < 1) throw base::ConfigError("{} needs a last axis of channels, its input is {}", kind.layer, input);
  if (kind.groups > 0 && input.back() % kind.groups != 0)
    throw base::ConfigError("{}: {} groups do not divide the {} channels of its input {}", kind.layer, kind.groups, input.back(),
                            input);
  return input;
}

std::vector<graph::ParameterSpec> group_norm_parameters(const GroupNormKind& kind, const Shape& input) {
  if (!kind.affine) return {};
  const Shape shape{input.back()};
  std::vector<graph::ParameterSpec> all{{"weight", shape, kind.scale, false}};
  if (kind.center) all.push_back({"bias", shape, kind.shift, false});
  return all;
}

Cost group_norm_cost(const Shape& output) { return {8 * output.elements(), 11 * output.elements(), 5 * output.elements()}; }

std::unique_ptr<Operation> plan_group_norm(const GroupNormKind& kind, const PlanContext& context) {
  return std::make_unique<GroupNormOperation>(kind, context);
}

}  // namespace gpipe::layers
