// sigmoid: torch.nn.functional.sigmoid.
#include "layers/activation.h"

namespace gpipe::layers {

const LayerType& sigmoid_layer() {
  static const LayerType type{
      "sigmoid", "1 / (1 + exp(-x))", 1, 1, false, make_activation<device::ActivationSpec::Kind::sigmoid, 5>, no_fields};
  return type;
}

}  // namespace gpipe::layers
