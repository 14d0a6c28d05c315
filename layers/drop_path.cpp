// drop_path: stochastic depth (Huang et al. 2016, arXiv 1603.09382), as timm and AmoebaNet drop whole paths of a sample. The
// mask is a function of (seed, step, node, sample).
#include "layers/random_mask.h"

namespace gpipe::layers {
namespace {

struct DropPathConfig {
  double keep = 1;
  bool ramp = false;
};

const base::FieldSet<DropPathConfig>& drop_path_fields() {
  static const auto fields = [] {
    base::FieldSet<DropPathConfig> f{"drop_path"};
    f.add("keep", &DropPathConfig::keep).required().at_least(0, true).at_most(1).help("probability of keeping a sample's path");
    f.add("ramp", &DropPathConfig::ramp).help("keep all at the first step, linearly fewer, `keep` at the last");
    return f;
  }();
  return fields;
}

class DropPath final : public Layer {
 public:
  explicit DropPath(const DropPathConfig& config) : config_(config) {}

  Shape output_shape(std::span<const Shape> inputs) const override { return inputs[0]; }
  Cost cost(std::span<const Shape>, const Shape& output) const override { return {output.elements(), output.elements(), 0}; }
  std::unique_ptr<Operation> plan(const PlanContext& context) const override {
    return plan_random_mask(device::DropoutSpec::Grain::sample, {1 - config_.keep, config_.ramp}, context);
  }

 private:
  DropPathConfig config_;
};

}  // namespace

const LayerType& drop_path_layer() {
  static const LayerType type{
      .name = "drop_path",
      .summary = "zeroes whole samples at random while training and scales the rest by 1 / keep",
      .make = make_layer<DropPath, DropPathConfig, drop_path_fields>,
      .fields = table_of<DropPathConfig, drop_path_fields>,
  };
  return type;
}

}  // namespace gpipe::layers
