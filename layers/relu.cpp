// relu: torch.nn.functional.relu.
#include "layers/activation.h"

namespace gpipe::layers {

const LayerType& relu_layer() {
  static const LayerType type{"relu",   "max(x, 0)", 1, 1, false, make_activation<device::ActivationSpec::Kind::relu, 1>,
                              no_fields};
  return type;
}

}  // namespace gpipe::layers
