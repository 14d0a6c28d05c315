// All node types that a network may use, in the order of layers/list.def.
#pragma once

#include "core/graph/network.h"

namespace gpipe::layers {

graph::LayerTypes layer_types();

}  // namespace gpipe::layers
