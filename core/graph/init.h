// The first values of a parameter: a pure function of (seed, full name, element), so that neither the partition nor the
// order of creation matters; those of an orthogonal matrix are one of (seed, full name, shape).
#pragma once

#include "core/graph/layer.h"

#include <cstdint>
#include <span>
#include <string>

namespace gpipe::graph {

/// `full_name`: "block1.conv2d_0.weight". truncated_normal draws again what lies outside of its bounds. An orthogonal matrix of
/// n x m takes time in n m min(n, m): a second for 1,024 x 1,024. Throws ConfigError where the shape is none that the kind can
/// fill.
void initialise(const ParameterSpec& parameter, const std::string& full_name, uint64_t seed, std::span<float> values);

}  // namespace gpipe::graph
