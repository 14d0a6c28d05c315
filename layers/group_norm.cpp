// group_norm: torch.nn.GroupNorm: groups of consecutive channels, over all positions of a sample.
#include "layers/sample_norm.h"

namespace gpipe::layers {
namespace {

struct GroupNormConfig : SampleNormConfig {
  int64_t num_groups = 1;
};

const base::FieldSet<GroupNormConfig>& group_norm_fields() {
  static const auto fields = [] {
    base::FieldSet<GroupNormConfig> f{"group_norm"};
    f.add("num_groups", &GroupNormConfig::num_groups)
        .required()
        .range(1, 1 << 20)
        .unit("groups")
        .help("that divide the channels");
    add_sample_norm_fields(f, "added to the variance", true);
    return f;
  }();
  return fields;
}

GroupNormKind kind_of(const GroupNormConfig& config) {
  return learned(config, {.layer = "group_norm", .groups = config.num_groups});
}

}  // namespace

const LayerType& group_norm_layer() {
  static const LayerType type{
      .name = "group_norm",
      .summary = "normalises groups of channels over all positions of a sample",
      .make = make_layer<SampleNorm<GroupNormConfig, kind_of>, GroupNormConfig, group_norm_fields>,
      .fields = table_of<GroupNormConfig, group_norm_fields>,
  };
  return type;
}

}  // namespace gpipe::layers
