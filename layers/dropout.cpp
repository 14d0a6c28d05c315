// dropout: torch.nn.Dropout. The mask is a function of (seed, step, node, sample, element): recomputing, cutting the
// network elsewhere or taking other micro-batches gives the same mask.
#include "layers/random_mask.h"

namespace gpipe::layers {
namespace {

struct DropoutConfig {
  double p = 0.5;
};

const base::FieldSet<DropoutConfig>& dropout_fields() {
  static const auto fields = [] {
    base::FieldSet<DropoutConfig> f{"dropout"};
    f.add("p", &DropoutConfig::p).range(0, 1, true).help("probability of dropping an element");
    return f;
  }();
  return fields;
}

class Dropout final : public Layer {
 public:
  explicit Dropout(const DropoutConfig& config) : config_(config) {}

  Shape output_shape(std::span<const Shape> inputs) const override { return inputs[0]; }
  Cost cost(std::span<const Shape>, const Shape& output) const override {
    return {10 * output.elements(), 10 * output.elements(), 0};
  }
  std::unique_ptr<Operation> plan(const PlanContext& context) const override {
    return plan_random_mask(device::DropoutSpec::Grain::element, {.p = config_.p}, context);
  }

 private:
  DropoutConfig config_;
};

}  // namespace

const LayerType& dropout_layer() {
  static const LayerType type{
      .name = "dropout",
      .summary = "zeroes elements at random while training and scales the rest by 1 / (1 - p)",
      .make = make_layer<Dropout, DropoutConfig, dropout_fields>,
      .fields = table_of<DropoutConfig, dropout_fields>,
  };
  return type;
}

}  // namespace gpipe::layers
