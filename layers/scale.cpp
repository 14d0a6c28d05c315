// scale: times a constant, or times a learned factor of each channel: LayerScale (Touvron et al. 2021, arXiv 2103.17239;
// `gamma` as in timm).
#include "layers/support.h"

namespace gpipe::layers {
namespace {

enum class Learned { none, channels };

struct ScaleConfig {
  double factor = 1;
  Learned learned = Learned::none;
  double init = 1;

  void finish(const base::Tree& tree, const std::string& path, base::Problems& problems) const {
    const auto given = [&](const char* key) { return tree.is_map() && tree.find(key) != nullptr; };
    const bool learns = learned == Learned::channels;
    if (given("factor") == learns)
      problems.add(tree.where(), path,
                   std::string("wanted either `factor` or `learned: channels`, found ") + (learns ? "both" : "neither"));
    if (given("init") && !learns)
      problems.add(place_of(tree, "init"), base::detail::join_path(path, "init"), "is for `learned: channels`");
  }
};

const base::FieldSet<ScaleConfig>& scale_fields() {
  static const auto fields = [] {
    base::FieldSet<ScaleConfig> f{"scale"};
    f.add("factor", &ScaleConfig::factor).help("of every element");
    f.add("learned", &ScaleConfig::learned, {"none", "channels"})
        .help("channels: a learned factor for each, in place of `factor`");
    f.add("init", &ScaleConfig::init).help("what the learned factors start with");
    return f;
  }();
  return fields;
}

// The gradient of x is that of y times the factor: forward on another value.
class ConstantOperation final : public Operation {
 public:
  explicit ConstantOperation(std::unique_ptr<device::ActivationOp> op) : op_(std::move(op)) {}

  Needs needs() const override { return {.in_place = true, .gradient_in_place = true}; }
  void forward(const ForwardCall& call, const NodeState&) override { op_->forward(call.inputs[0], call.output); }
  void backward_input(const BackwardCall& call, const NodeState&) override {
    if (call.dx[0]) op_->forward(call.dy, call.dx[0]);
  }

 private:
  std::unique_ptr<device::ActivationOp> op_;
};

class LearnedOperation final : public Operation {
 public:
  explicit LearnedOperation(std::unique_ptr<device::ChannelScaleOp> op) : op_(std::move(op)) {}

  Needs needs() const override { return {.inputs = true}; }
  size_t workspace_bytes() const override { return op_->workspace_bytes(); }
  bool has_backward_weight() const override { return true; }
  void forward(const ForwardCall& call, const NodeState& state) override {
    op_->apply(call.inputs[0], state.parameters[0], call.output);
  }
  void backward_input(const BackwardCall& call, const NodeState& state) override {
    if (call.dx[0]) op_->apply(call.dy, state.parameters[0], call.dx[0]);
  }
  void backward_weight(const BackwardCall& call, const NodeState& state) override {
    op_->backward_weight(call.inputs[0], call.dy, state.gradients[0], call.pass.micro > 0, call.workspace);
  }

 private:
  std::unique_ptr<device::ChannelScaleOp> op_;
};

class Scale final : public Layer {
 public:
  explicit Scale(const ScaleConfig& config) : config_(config) {}

  Shape output_shape(std::span<const Shape> inputs) const override {
    if (inputs[0].rank() == 0) throw base::ConfigError("scale needs channels, its input is a number");
    return inputs[0];
  }
  std::vector<graph::ParameterSpec> parameters(std::span<const Shape> inputs) const override {
    if (config_.learned == Learned::none) return {};
    return {{"gamma", {inputs[0].back()}, {graph::Init::Kind::constant, config_.init}, false}};
  }
  Cost cost(std::span<const Shape>, const Shape& output) const override {
    const int64_t elements = output.elements();
    return {elements, elements, config_.learned == Learned::none ? 0 : 2 * elements};
  }
  std::unique_ptr<Operation> plan(const PlanContext& context) const override {
    if (config_.learned == Learned::channels)
      return std::make_unique<LearnedOperation>(context.backend.channel_scale(context.inputs[0].back()));
    return std::make_unique<ConstantOperation>(
        context.backend.activation({.kind = device::ActivationSpec::Kind::scale, .slope = config_.factor}));
  }

 private:
  ScaleConfig config_;
};

}  // namespace

const LayerType& scale_layer() {
  static const LayerType type{
      .name = "scale",
      .summary = "times a constant, or times a learned factor of each channel",
      .make = make_layer<Scale, ScaleConfig, scale_fields>,
      .fields = table_of<ScaleConfig, scale_fields>,
  };
  return type;
}

}  // namespace gpipe::layers
