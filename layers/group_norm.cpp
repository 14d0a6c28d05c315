// group_norm: torch.nn.GroupNorm: groups of consecutive channels, over all positions of a sample.
#include "layers/sample_norm.h"

namespace gpipe::layers {
namespace {

struct GroupNormConfig : NormStart {
  int64_t num_groups = 1;
  double eps = 1e-5;
  bool affine = true;
};

const base::FieldSet<GroupNormConfig>& group_norm_fields() {
  static const auto fields = [] {
    base::FieldSet<GroupNormConfig> f{"group_norm"};
    f.add("num_groups", &GroupNormConfig::num_groups)
        .required()
        .range(1, 1 << 20)
        .unit("groups")
        .help("that divide the channels");
    f.add("eps", &GroupNormConfig::eps).at_least(0, true).help("added to the variance");
    f.add("affine", &GroupNormConfig::affine).help("learn a scale and a shift for every channel");
    add_norm_start(f);
    return f;
  }();
  return fields;
}

class GroupNorm final : public Layer {
 public:
  explicit GroupNorm(const GroupNormConfig& config) : config_(config) {}
  Shape output_shape(std::span<const Shape> inputs) const override { return group_norm_shape("group_norm", kind(), inputs[0]); }
  std::vector<graph::ParameterSpec> parameters(std::span<const Shape> inputs) const override {
    return group_norm_parameters(kind(), inputs[0]);
  }
  Cost cost(std::span<const Shape>, const Shape& output) const override { return group_norm_cost(output); }
  std::unique_ptr<Operation> plan(const PlanContext& context) const override { return plan_group_norm(kind(), context); }

 private:
  GroupNormKind kind() const {
    return {.groups = config_.num_groups,
            .epsilon = config_.eps,
            .affine = config_.affine,
            .scale = config_.scale(),
            .shift = config_.shift()};
  }
  GroupNormConfig config_;
};

}  // namespace

const LayerType& group_norm_layer() {
  static const LayerType type{
      .name = "group_norm",
      .summary = "normalises groups of channels over all positions of a sample",
      .make = make_layer<GroupNorm, GroupNormConfig, group_norm_fields>,
      .fields = table_of<GroupNormConfig, group_norm_fields>,
  };
  return type;
}

}  // namespace gpipe::layers
