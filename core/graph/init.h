// The first values of a parameter: a pure function of (seed, full name, element), so that neither the partition nor the
// order of creation matters.
#pragma once

#include "core/graph/layer.h"

#include <cstdint>
#include <span>
#include <string>

namespace gpipe::graph {

/// `full_name`: "block1.conv2d_0.weight". truncated_normal draws again what lies beyond two standard deviations.
void initialise(const ParameterSpec& parameter, const std::string& full_name, uint64_t seed, std::span<float> values);

}  // namespace gpipe::graph
