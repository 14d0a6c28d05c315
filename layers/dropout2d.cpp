// dropout2d: torch.nn.Dropout2d: whole channels of a sample, at all positions. The mask is a function of (seed, step, node,
// sample, channel), as dropout's is of the element.
#include "layers/random_mask.h"

namespace gpipe::layers {
namespace {

struct Dropout2dConfig {
  double p = 0.5;
};

const base::FieldSet<Dropout2dConfig>& dropout2d_fields() {
  static const auto fields = [] {
    base::FieldSet<Dropout2dConfig> f{"dropout2d"};
    f.add("p", &Dropout2dConfig::p).range(0, 1, true).help("probability of dropping a channel");
    return f;
  }();
  return fields;
}

class Dropout2d final : public Layer {
 public:
  explicit Dropout2d(const Dropout2dConfig& config) : config_(config) {}

  Shape output_shape(std::span<const Shape> inputs) const override {
    if (inputs[0].rank() < 2)
      throw base::ConfigError("dropout2d needs positions and channels, [..., channels], its input is {}: use dropout", inputs[0]);
    return inputs[0];
  }
  Cost cost(std::span<const Shape>, const Shape& output) const override { return {output.elements(), output.elements(), 0}; }
  std::unique_ptr<Operation> plan(const PlanContext& context) const override {
    return plan_random_mask(device::DropoutSpec::Grain::channel, {.p = config_.p}, context);
  }

 private:
  Dropout2dConfig config_;
};

}  // namespace

const LayerType& dropout2d_layer() {
  static const LayerType type{
      .name = "dropout2d",
      .summary = "zeroes whole channels of a sample at random while training and scales the rest by 1 / (1 - p)",
      .make = make_layer<Dropout2d, Dropout2dConfig, dropout2d_fields>,
      .fields = table_of<Dropout2dConfig, dropout2d_fields>,
  };
  return type;
}

}  // namespace gpipe::layers
