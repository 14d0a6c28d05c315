#include "layers/layer_types.h"

namespace gpipe::layers {

#define GPIPE_LAYER(name) const graph::LayerType& name##_layer();
#include "layers/list.def"
#undef GPIPE_LAYER

graph::LayerTypes layer_types() {
  return {
#define GPIPE_LAYER(name) &name##_layer(),
#include "layers/list.def"
#undef GPIPE_LAYER
  };
}

}  // namespace gpipe::layers
