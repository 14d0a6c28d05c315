// global_avg_pool: torch.nn.AdaptiveAvgPool2d(1) and the flattening that follows it: [..., C] to [C].
#include "layers/pool.h"

namespace gpipe::layers {
namespace {

class GlobalAvgPool final : public Layer {
 public:
  Shape output_shape(std::span<const Shape> inputs) const override {
    if (inputs[0].rank() != 2 && inputs[0].rank() != 3)
      throw base::ConfigError("global_avg_pool needs [height, width, channels] or [positions, channels], its input is {}",
                              inputs[0]);
    return {inputs[0].back()};
  }
  Cost cost(std::span<const Shape> inputs, const Shape&) const override {
    return {inputs[0].elements(), inputs[0].elements(), 0};
  }
  std::unique_ptr<Operation> plan(const PlanContext& context) const override {
    const Shape& x = context.inputs[0];
    const Shape image = x.rank() == 3 ? x : Shape{x[0], 1, x[1]};
    const Window window{.kernel = {image[0], image[1]}};
    return pool_operation(pool_spec(device::PoolSpec::Kind::average, image, window, place("global_avg_pool", window, image)),
                          context);
  }
};

}  // namespace

const LayerType& global_avg_pool_layer() {
  static const LayerType type{
      .name = "global_avg_pool",
      .summary = "mean of every channel over all positions",
      .make = make_plain<GlobalAvgPool>,
      .fields = no_fields,
  };
  return type;
}

}  // namespace gpipe::layers
