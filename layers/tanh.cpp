// tanh: torch.nn.functional.tanh.
#include "layers/activation.h"

namespace gpipe::layers {

const LayerType& tanh_layer() {
  static const LayerType type{"tanh",   "hyperbolic tangent", 1, 1, false, make_activation<device::ActivationSpec::Kind::tanh, 8>,
                              no_fields};
  return type;
}

}  // namespace gpipe::layers
