// sigmoid: torch.nn.functional.sigmoid.
#include "layers/activation.h"

namespace gpipe::layers {

const LayerType& sigmoid_layer() {
  static const LayerType type{
      .name = "sigmoid",
      .summary = "1 / (1 + exp(-x))",
      .make = make_activation<device::ActivationSpec::Kind::sigmoid, 5>,
      .fields = no_fields,
  };
  return type;
}

}  // namespace gpipe::layers
