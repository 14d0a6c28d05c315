// silu: torch.nn.functional.silu.
#include "layers/activation.h"

namespace gpipe::layers {

const LayerType& silu_layer() {
  static const LayerType type{
      "silu", "x sigmoid(x), also called swish", 1, 1, false, make_activation<device::ActivationSpec::Kind::silu, 6>, no_fields};
  return type;
}

}  // namespace gpipe::layers
