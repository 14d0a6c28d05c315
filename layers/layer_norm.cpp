// layer_norm: torch.nn.LayerNorm over the last axis: every position of a sample is normalised alone.
#include "layers/sample_norm.h"

namespace gpipe::layers {
namespace {

struct LayerNormConfig : NormStart {
  double eps = 1e-5;
  bool affine = true;
};

const base::FieldSet<LayerNormConfig>& layer_norm_fields() {
  static const auto fields = [] {
    base::FieldSet<LayerNormConfig> f{"layer_norm"};
    f.add("eps", &LayerNormConfig::eps).at_least(0, true).help("added to the variance");
    f.add("affine", &LayerNormConfig::affine).help("learn a scale and a shift for every channel");
    add_norm_start(f);
    return f;
  }();
  return fields;
}

class LayerNorm final : public Layer {
 public:
  explicit LayerNorm(const LayerNormConfig& config) : config_(config) {}
  Shape output_shape(std::span<const Shape> inputs) const override { return group_norm_shape("layer_norm", kind(), inputs[0]); }
  std::vector<graph::ParameterSpec> parameters(std::span<const Shape> inputs) const override {
    return group_norm_parameters(kind(), inputs[0]);
  }
  Cost cost(std::span<const Shape>, const Shape& output) const override { return group_norm_cost(output); }
  std::unique_ptr<Operation> plan(const PlanContext& context) const override { return plan_group_norm(kind(), context); }

 private:
  GroupNormKind kind() const {
    return {.by_position = true,
            .epsilon = config_.eps,
            .affine = config_.affine,
            .scale = config_.scale(),
            .shift = config_.shift()};
  }
  LayerNormConfig config_;
};

}  // namespace

const LayerType& layer_norm_layer() {
  static const LayerType type{
      .name = "layer_norm",
      .summary = "normalises every position over its channels",
      .make = make_layer<LayerNorm, LayerNormConfig, layer_norm_fields>,
      .fields = table_of<LayerNormConfig, layer_norm_fields>,
  };
  return type;
}

}  // namespace gpipe::layers
