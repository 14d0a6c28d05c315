// relu: torch.nn.functional.relu.
#include "layers/activation.h"

namespace gpipe::layers {

const LayerType& relu_layer() {
  static const LayerType type{
      .name = "relu",
      .summary = "max(x, 0)",
      .make = make_activation<device::ActivationSpec::Kind::relu, 1>,
      .fields = no_fields,
  };
  return type;
}

}  // namespace gpipe::layers
