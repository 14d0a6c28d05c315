// dropout: torch.nn.Dropout. The mask is a function of (seed, step, node, sample, element): recomputing, cutting the
// network elsewhere or taking other micro-batches gives the same mask.
#include "layers/support.h"

namespace gpipe::layers {
namespace {

struct DropoutConfig {
  double p = 0.5;
};

const base::FieldSet<DropoutConfig>& dropout_fields() {
  static const auto fields = [] {
    base::FieldSet<DropoutConfig> f{"dropout"};
    f.add("p", &DropoutConfig::p).range(0, 1, true).help("probability of dropping an element");
    return f;
  }();
  return fields;
}

class DropoutOperation final : public Operation {
 public:
  DropoutOperation(double p, device::Backend& backend) : drops_(p > 0), backend_(backend), op_(backend.dropout({p})) {}

  Needs needs() const override { return {.in_place = true, .gradient_in_place = true}; }
  void forward(const ForwardCall& call, const NodeState&) override { apply(call.pass, call.inputs[0], call.output); }
  void backward_input(const BackwardCall& call, const NodeState&) override {
    if (call.dx[0]) apply(call.pass, call.dy, call.dx[0]);
  }

 private:
  void apply(const graph::Pass& pass, const TensorView& from, const TensorView& to) {
    if (pass.training && drops_)
      op_->apply(from, to, {pass.seed, pass.step, pass.node, pass.first_sample});
    else if (from.data != to.data)
      backend_.copy(from, to);
  }

  bool drops_;
  device::Backend& backend_;
  std::unique_ptr<device::DropoutOp> op_;
};

class Dropout final : public Layer {
 public:
  explicit Dropout(const DropoutConfig& config) : config_(config) {}

  Shape output_shape(std::span<const Shape> inputs) const override { return inputs[0]; }
  Cost cost(std::span<const Shape>, const Shape& output) const override {
    return {10 * output.elements(), 10 * output.elements(), 0};
  }
  std::unique_ptr<Operation> plan(const PlanContext& context) const override {
    return std::make_unique<DropoutOperation>(config_.p, context.backend);
  }

 private:
  DropoutConfig config_;
};

}  // namespace

const LayerType& dropout_layer() {
  static const LayerType type{
      .name = "dropout",
      .summary = "zeroes elements at random while training and scales the rest by 1 / (1 - p)",
      .make = make_layer<Dropout, DropoutConfig, dropout_fields>,
      .fields = table_of<DropoutConfig, dropout_fields>,
  };
  return type;
}

}  // namespace gpipe::layers
