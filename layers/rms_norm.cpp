// rms_norm: torch.nn.RMSNorm over the last axis: divided by the root of the mean square, without a mean and a shift.
#include "layers/sample_norm.h"

namespace gpipe::layers {
namespace {

struct RmsNormConfig : SampleNormConfig {
  RmsNormConfig() { eps = 1.1920929e-7; }
};

const base::FieldSet<RmsNormConfig>& rms_norm_fields() {
  static const auto fields = [] {
    base::FieldSet<RmsNormConfig> f{"rms_norm"};
    add_sample_norm_fields(f, "added to the mean square", false);
    return f;
  }();
  return fields;
}

GroupNormKind kind_of(const RmsNormConfig& config) {
  return learned(config, {.layer = "rms_norm", .by_position = true, .center = false});
}

}  // namespace

const LayerType& rms_norm_layer() {
  static const LayerType type{
      .name = "rms_norm",
      .summary = "divides every position by the root mean square of its channels",
      .make = make_layer<SampleNorm<RmsNormConfig, kind_of>, RmsNormConfig, rms_norm_fields>,
      .fields = table_of<RmsNormConfig, rms_norm_fields>,
  };
  return type;
}

}  // namespace gpipe::layers
