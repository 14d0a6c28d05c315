// flatten: all axes into one, in the order of memory. Images are channels-last here, so the order is height, width,
// channel, where PyTorch's is channel, height, width: a linear layer behind it has the same weights in other columns.
#include "layers/same_memory.h"

namespace gpipe::layers {
namespace {

class Flatten final : public Layer {
 public:
  Shape output_shape(std::span<const Shape> inputs) const override { return {inputs[0].elements()}; }
  Cost cost(std::span<const Shape>, const Shape&) const override { return {}; }
  std::unique_ptr<Operation> plan(const PlanContext& context) const override {
    return make_same_memory_operation(context.backend);
  }
};

}  // namespace

const LayerType& flatten_layer() {
  static const LayerType type{
      .name = "flatten",
      .summary = "all axes into one, order height, width, channel",
      .make = make_plain<Flatten>,
      .fields = no_fields,
  };
  return type;
}

}  // namespace gpipe::layers
