// layer_norm: torch.nn.LayerNorm over the last axis: every position of a sample is normalised alone.
#include "layers/sample_norm.h"

namespace gpipe::layers {
namespace {

struct LayerNormConfig : SampleNormConfig {};

const base::FieldSet<LayerNormConfig>& layer_norm_fields() {
  static const auto fields = [] {
    base::FieldSet<LayerNormConfig> f{"layer_norm"};
    add_sample_norm_fields(f, "added to the variance", true);
    return f;
  }();
  return fields;
}

GroupNormKind kind_of(const LayerNormConfig& config) { return learned(config, {.layer = "layer_norm", .by_position = true}); }

}  // namespace

const LayerType& layer_norm_layer() {
  static const LayerType type{
      .name = "layer_norm",
      .summary = "normalises every position over its channels",
      .make = make_layer<SampleNorm<LayerNormConfig, kind_of>, LayerNormConfig, layer_norm_fields>,
      .fields = table_of<LayerNormConfig, layer_norm_fields>,
  };
  return type;
}

}  // namespace gpipe::layers
