// silu: torch.nn.functional.silu.
#include "layers/activation.h"

namespace gpipe::layers {

const LayerType& silu_layer() {
  static const LayerType type{
      .name = "silu",
      .summary = "x sigmoid(x), also called swish",
      .make = make_activation<device::ActivationSpec::Kind::silu, 6>,
      .fields = no_fields,
  };
  return type;
}

}  // namespace gpipe::layers
