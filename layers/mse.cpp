// mse: torch.nn.functional.mse_loss, the mean over a sample's elements averaged over the samples of the whole mini-batch.
// The output of a sample is [its loss, 0].
#include "layers/loss.h"

namespace gpipe::layers {
namespace {

class Mse final : public Layer {
 public:
  Shape output_shape(std::span<const Shape> inputs) const override {
    if (inputs[0] != inputs[1])
      throw base::ConfigError("mse needs a prediction and a target of one shape, found {} and {}", inputs[0], inputs[1]);
    return {2};
  }
  Cost cost(std::span<const Shape> inputs, const Shape&) const override {
    return {3 * inputs[0].elements(), 2 * inputs[0].elements(), 0};
  }
  std::unique_ptr<Operation> plan(const PlanContext& context) const override {
    return make_loss_operation(context.backend.mean_squared_error());
  }
};

}  // namespace

const LayerType& mse_layer() {
  static const LayerType type{
      .name = "mse",
      .summary = "loss: mean squared error",
      .min_inputs = 2,
      .max_inputs = 2,
      .is_loss = true,
      .make = make_plain<Mse>,
      .fields = no_fields,
  };
  return type;
}

}  // namespace gpipe::layers
