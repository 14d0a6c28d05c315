// instance_norm: torch.nn.InstanceNorm: every channel over all positions of a sample; without learned numbers unless asked.
#include "layers/sample_norm.h"

namespace gpipe::layers {
namespace {

struct InstanceNormConfig : SampleNormConfig {
  InstanceNormConfig() { affine = false; }
};

const base::FieldSet<InstanceNormConfig>& instance_norm_fields() {
  static const auto fields = [] {
    base::FieldSet<InstanceNormConfig> f{"instance_norm"};
    add_sample_norm_fields(f, "added to the variance", true);
    return f;
  }();
  return fields;
}

GroupNormKind kind_of(const InstanceNormConfig& config) { return learned(config, {.layer = "instance_norm", .groups = 0}); }

}  // namespace

const LayerType& instance_norm_layer() {
  static const LayerType type{
      .name = "instance_norm",
      .summary = "normalises every channel over all positions of a sample",
      .make = make_layer<SampleNorm<InstanceNormConfig, kind_of>, InstanceNormConfig, instance_norm_fields>,
      .fields = table_of<InstanceNormConfig, instance_norm_fields>,
  };
  return type;
}

}  // namespace gpipe::layers
