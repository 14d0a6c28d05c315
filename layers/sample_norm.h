// What the norms that look at one sample alone share: layer, RMS, group and instance norm.
#pragma once

#include "layers/norm_start.h"
#include "layers/support.h"

namespace gpipe::layers {

/// A base of the configurations.
struct SampleNormConfig : NormStart {
  double eps = 1e-5;
  bool affine = true;
};

/// `eps_help`: what it is added to; RMS norm has no shift.
template <class Config>
void add_sample_norm_fields(base::FieldSet<Config>& fields, const char* eps_help, bool has_shift) {
  fields.add("eps", &Config::eps).at_least(0, true).help(eps_help);
  fields.add("affine", &Config::affine)
      .help(has_shift ? "learn a scale and a shift for every channel" : "learn a scale for every channel");
  add_norm_start(fields, has_shift);
}

struct GroupNormKind {
  const char* layer;
  int64_t groups = 1;        // of the channels; 0: every channel is one
  bool by_position = false;  // each position is normalised alone (layer and RMS norm)
  bool center = true;        // false: RMS norm, which has no mean and no shift
  double epsilon = 1e-5;
  bool affine = true;
  graph::Init scale{graph::Init::Kind::constant, 1}, shift{graph::Init::Kind::constant, 0};
};

/// `kind` with what every configuration says.
GroupNormKind learned(const SampleNormConfig& config, GroupNormKind kind);

/// Over [..., C]. Throws ConfigError for an input without channels, channels that groups do not divide, or channels that are
/// groups of their own without positions to average over.
Shape group_norm_shape(const GroupNormKind& kind, const Shape& input);
std::vector<graph::ParameterSpec> group_norm_parameters(const GroupNormKind& kind, const Shape& input);
Cost group_norm_cost(const Shape& output);
std::unique_ptr<Operation> plan_group_norm(const GroupNormKind& kind, const PlanContext& context);

template <class Config, GroupNormKind (*kind_of)(const Config&)>
class SampleNorm final : public Layer {
 public:
  explicit SampleNorm(const Config& config) : kind_(kind_of(config)) {}

  Shape output_shape(std::span<const Shape> inputs) const override { return group_norm_shape(kind_, inputs[0]); }
  std::vector<graph::ParameterSpec> parameters(std::span<const Shape> inputs) const override {
    return group_norm_parameters(kind_, inputs[0]);
  }
  Cost cost(std::span<const Shape>, const Shape& output) const override { return group_norm_cost(output); }
  std::unique_ptr<Operation> plan(const PlanContext& context) const override { return plan_group_norm(kind_, context); }

 private:
  GroupNormKind kind_;
};

}  // namespace gpipe::layers
