// What the norms that look at one sample alone share: layer, RMS, group and instance norm.
#pragma once

#include "layers/norm_start.h"
#include "layers/support.h"

namespace gpipe::layers {

struct GroupNormKind {
  int64_t groups = 1;        // of the channels; 0: every channel is one
  bool by_position = false;  // each position is normalised alone (layer and RMS norm)
  bool center = true;        // false: RMS norm, which has no mean and no shift
  double epsilon = 1e-5;
  bool affine = true;
  graph::Init scale{graph::Init::Kind::constant, 1}, shift{graph::Init::Kind::constant, 0};
};

/// Over [..., C]. Throws ConfigError for an input without channels, or channels that groups do not divide.
Shape group_norm_shape(const char* layer, const GroupNormKind& kind, const Shape& input);
std::vector<graph::ParameterSpec> group_norm_parameters(const GroupNormKind& kind, const Shape& input);
Cost group_norm_cost(const Shape& output);
std::unique_ptr<Operation> plan_group_norm(const GroupNormKind& kind, const PlanContext& context);

}  // namespace gpipe::layers
