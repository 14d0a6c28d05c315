#include "core/graph/layer.h"

#include <algorithm>

namespace gpipe::graph {

DType Layer::output_type(std::span<const DType> inputs) const {
  if (std::any_of(inputs.begin(), inputs.end(), [](DType type) { return type != DType::f32; }))
    throw base::ConfigError("it takes numbers, found token ids (integers); put an `embedding` before it");
  return DType::f32;
}

}  // namespace gpipe::graph
