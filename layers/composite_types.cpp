#include "layers/composite_types.h"

namespace gpipe::layers {

#define GPIPE_COMPOSITE(name) const graph::CompositeType& name##_composite();
#include "layers/composites.def"
#undef GPIPE_COMPOSITE

const graph::CompositeTypes& composite_types() {
  static const graph::CompositeTypes types{
#define GPIPE_COMPOSITE(name) &name##_composite(),
#include "layers/composites.def"
#undef GPIPE_COMPOSITE
  };
  return types;
}

}  // namespace gpipe::layers
