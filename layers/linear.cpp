// linear: torch.nn.Linear on [features], or on each position of [positions, features].
#include "layers/initial.h"
#include "layers/weighted.h"

namespace gpipe::layers {
namespace {

struct LinearConfig {
  int64_t out_features = 0;
  bool bias = true;
  base::Tree init, bias_init;
  std::optional<InitRule> weight_rule, bias_rule;  // read from these

  void finish(const base::Tree&, const std::string& path, base::Problems& problems) {
    weight_rule = read_init(init, base::detail::join_path(path, "init"), problems);
    bias_rule = read_init(bias_init, base::detail::join_path(path, "bias_init"), problems, InitTarget::vector);
  }
};

const base::FieldSet<LinearConfig>& linear_fields() {
  static const auto fields = [] {
    base::FieldSet<LinearConfig> f{"linear"};
    f.add("out_features", &LinearConfig::out_features).required().range(1, 1 << 24).help("length of the output");
    f.add("bias", &LinearConfig::bias).help("add a bias");
    f.add("init", &LinearConfig::init).help(std::string("start of the weight: ") + init_help);
    f.add("bias_init", &LinearConfig::bias_init).help("start of the bias, in the same words");
    return f;
  }();
  return fields;
}

class Linear final : public Layer {
 public:
  explicit Linear(LinearConfig config) : config_(std::move(config)) {}

  Shape output_shape(std::span<const Shape> inputs) const override {
    const Shape& x = inputs[0];
    if (x.rank() == 1) return {config_.out_features};
    if (x.rank() == 2) return {x[0], config_.out_features};
    throw base::ConfigError("linear needs [features] or [positions, features], its input is {}: put a flatten before it", x);
  }

  std::vector<graph::ParameterSpec> parameters(std::span<const Shape> inputs) const override {
    const int64_t in = inputs[0].back(), out = config_.out_features;
    const auto init = [&](const std::optional<InitRule>& rule) { return rule ? rule->resolve(in, out) : default_init(in); };
    std::vector<graph::ParameterSpec> all = {{"weight", {out, in}, init(config_.weight_rule), true}};
    if (config_.bias) all.push_back({"bias", {out}, init(config_.bias_rule), false});
    return all;
  }

  Cost cost(std::span<const Shape> inputs, const Shape& output) const override {
    const int64_t flops = 2 * inputs[0].back() * output.elements();
    return {flops, flops, flops};
  }

  std::unique_ptr<Operation> plan(const PlanContext& context) const override {
    const device::LinearSpec spec{.in_features = context.inputs[0].back(),
                                  .out_features = config_.out_features,
                                  .bias = config_.bias,
                                  .input_gradient = context.input_gradients[0]};
    return make_weighted_operation(context.backend.linear(spec, rows_of(context, 0)), true);
  }

 private:
  LinearConfig config_;
};

}  // namespace

const LayerType& linear_layer() {
  static const LayerType type{
      .name = "linear",
      .summary = "affine map of the last axis",
      .make = make_layer<Linear, LinearConfig, linear_fields>,
      .fields = table_of<LinearConfig, linear_fields>,
  };
  return type;
}

}  // namespace gpipe::layers
