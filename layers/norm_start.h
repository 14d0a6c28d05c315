// What the learned numbers of norms start with: `init` of the scale and `bias_init` of the shift.
#pragma once

#include "core/base/fields.h"
#include "layers/initial.h"

namespace gpipe::layers {

/// A base of the norms' configurations. Without settings the scale is 1 and the shift 0, as in PyTorch.
struct NormStart {
  base::Tree init, bias_init;
  std::optional<InitRule> weight_rule, bias_rule;  // read from these

  void finish(const base::Tree&, const std::string& path, base::Problems& problems) {
    weight_rule = read_init(init, base::detail::join_path(path, "init"), problems, InitTarget::lone_vector);
    bias_rule = read_init(bias_init, base::detail::join_path(path, "bias_init"), problems, InitTarget::lone_vector);
  }
  graph::Init scale() const { return weight_rule ? weight_rule->init : graph::Init{graph::Init::Kind::constant, 1}; }
  graph::Init shift() const { return bias_rule ? bias_rule->init : graph::Init{graph::Init::Kind::constant, 0}; }
};

template <class Config>
void add_norm_start(base::FieldSet<Config>& fields, bool has_shift = true) {
  fields.add("init", &Config::init).help("start of the scale: constant, zeros, normal and their like; default: ones");
  if (has_shift) fields.add("bias_init", &Config::bias_init).help("start of the shift, in the same words; default: zeros");
}

}  // namespace gpipe::layers
