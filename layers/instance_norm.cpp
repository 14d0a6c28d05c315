// instance_norm: torch.nn.InstanceNorm: every channel over all positions of a sample; without learned numbers unless asked.
#include "layers/sample_norm.h"

namespace gpipe::layers {
namespace {

struct InstanceNormConfig : NormStart {
  double eps = 1e-5;
  bool affine = false;
};

const base::FieldSet<InstanceNormConfig>& instance_norm_fields() {
  static const auto fields = [] {
    base::FieldSet<InstanceNormConfig> f{"instance_norm"};
    f.add("eps", &InstanceNormConfig::eps).at_least(0, true).help("added to the variance");
    f.add("affine", &InstanceNormConfig::affine).help("learn a scale and a shift for every channel");
    add_norm_start(f);
    return f;
  }();
  return fields;
}

class InstanceNorm final : public Layer {
 public:
  explicit InstanceNorm(const InstanceNormConfig& config) : config_(config) {}
  Shape output_shape(std::span<const Shape> inputs) const override {
    if (inputs[0].rank() < 2)
      throw base::ConfigError("instance_norm needs positions to average over, its input is {}", inputs[0]);
    return group_norm_shape("instance_norm", kind(), inputs[0]);
  }
  std::vector<graph::ParameterSpec> parameters(std::span<const Shape> inputs) const override {
    return group_norm_parameters(kind(), inputs[0]);
  }
  Cost cost(std::span<const Shape>, const Shape& output) const override { return group_norm_cost(output); }
  std::unique_ptr<Operation> plan(const PlanContext& context) const override { return plan_group_norm(kind(), context); }

 private:
  GroupNormKind kind() const {
    return {.groups = 0, .epsilon = config_.eps, .affine = config_.affine, .scale = config_.scale(), .shift = config_.shift()};
  }
  InstanceNormConfig config_;
};

}  // namespace

const LayerType& instance_norm_layer() {
  static const LayerType type{
      .name = "instance_norm",
      .summary = "normalises every channel over all positions of a sample",
      .make = make_layer<InstanceNorm, InstanceNormConfig, instance_norm_fields>,
      .fields = table_of<InstanceNormConfig, instance_norm_fields>,
  };
  return type;
}

}  // namespace gpipe::layers
