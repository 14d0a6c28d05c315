// tanh: torch.nn.functional.tanh.
#include "layers/activation.h"

namespace gpipe::layers {

const LayerType& tanh_layer() {
  static const LayerType type{
      .name = "tanh",
      .summary = "hyperbolic tangent",
      .make = make_activation<device::ActivationSpec::Kind::tanh, 8>,
      .fields = no_fields,
  };
  return type;
}

}  // namespace gpipe::layers
