// rms_norm: torch.nn.RMSNorm over the last axis: divided by the root of the mean square, without a mean and a shift.
#include "layers/sample_norm.h"

namespace gpipe::layers {
namespace {

struct RmsNormConfig : NormStart {
  double eps = 1.1920929e-7;
  bool affine = true;
};

const base::FieldSet<RmsNormConfig>& rms_norm_fields() {
  static const auto fields = [] {
    base::FieldSet<RmsNormConfig> f{"rms_norm"};
    f.add("eps", &RmsNormConfig::eps).at_least(0, true).help("added to the mean square");
    f.add("affine", &RmsNormConfig::affine).help("learn a scale for every channel");
    add_norm_start(f, false);
    return f;
  }();
  return fields;
}

class RmsNorm final : public Layer {
 public:
  explicit RmsNorm(const RmsNormConfig& config) : config_(config) {}
  Shape output_shape(std::span<const Shape> inputs) const override { return group_norm_shape("rms_norm", kind(), inputs[0]); }
  std::vector<graph::ParameterSpec> parameters(std::span<const Shape> inputs) const override {
    return group_norm_parameters(kind(), inputs[0]);
  }
  Cost cost(std::span<const Shape>, const Shape& output) const override { return group_norm_cost(output); }
  std::unique_ptr<Operation> plan(const PlanContext& context) const override { return plan_group_norm(kind(), context); }

 private:
  GroupNormKind kind() const {
    return {.by_position = true,
            .center = false,
            .epsilon = config_.eps,
            .affine = config_.affine,
            .scale = config_.scale(),
            .shift = config_.shift()};
  }
  RmsNormConfig config_;
};

}  // namespace

const LayerType& rms_norm_layer() {
  static const LayerType type{
      .name = "rms_norm",
      .summary = "divides every position by the root mean square of its channels",
      .make = make_layer<RmsNorm, RmsNormConfig, rms_norm_fields>,
      .fields = table_of<RmsNormConfig, rms_norm_fields>,
  };
  return type;
}

}  // namespace gpipe::layers
