// shift_tokens: token ids moved one position on, behind a start id: what a decoder reads while it learns to predict the ids
// themselves (teacher forcing). i32 [T] -> i32 [T]; ids below zero (ignored targets) become padding.
#include "layers/support.h"

namespace gpipe::layers {
namespace {

struct ShiftConfig {
  int64_t start = 0, padding = 0;
};

const base::FieldSet<ShiftConfig>& shift_fields() {
  static const auto fields = [] {
    base::FieldSet<ShiftConfig> f{"shift_tokens"};
    f.add("start", &ShiftConfig::start).required().range(0, 1 << 30).help("id at the first position");
    f.add("padding", &ShiftConfig::padding).required().range(0, 1 << 30).help("id in place of ids below zero");
    return f;
  }();
  return fields;
}

class ShiftOperation final : public Operation {
 public:
  explicit ShiftOperation(std::unique_ptr<device::ShiftOp> op) : op_(std::move(op)) {}
  Needs needs() const override { return {}; }
  void forward(const ForwardCall& call, const NodeState&) override { op_->forward(call.inputs[0], call.output); }
  void backward_input(const BackwardCall&, const NodeState&) override {}  // an id has no gradient

 private:
  std::unique_ptr<device::ShiftOp> op_;
};

class ShiftTokens final : public Layer {
 public:
  explicit ShiftTokens(const ShiftConfig& config) : config_(config) {}

  Shape output_shape(std::span<const Shape> inputs) const override {
    if (inputs[0].rank() != 1) throw base::ConfigError("shift_tokens needs token ids [positions], its input is {}", inputs[0]);
    return inputs[0];
  }
  DType output_type(std::span<const DType> inputs) const override {
    if (inputs[0] != DType::i32) throw base::ConfigError("shift_tokens needs token ids (integers), its input is of real numbers");
    return DType::i32;
  }
  Cost cost(std::span<const Shape>, const Shape&) const override { return {}; }
  std::unique_ptr<Operation> plan(const PlanContext& context) const override {
    return std::make_unique<ShiftOperation>(
        context.backend.shift({static_cast<int32_t>(config_.start), static_cast<int32_t>(config_.padding)}));
  }

 private:
  ShiftConfig config_;
};

}  // namespace

const LayerType& shift_tokens_layer() {
  static const LayerType type{
      .name = "shift_tokens",
      .summary = "token ids moved one position on, behind a start id",
      .make = make_layer<ShiftTokens, ShiftConfig, shift_fields>,
      .fields = table_of<ShiftConfig, shift_fields>,
  };
  return type;
}

}  // namespace gpipe::layers
