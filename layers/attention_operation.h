// What the attention layer is planned as: two or three linear maps around a backend's attention.
#pragma once

#include "layers/support.h"

namespace gpipe::layers {

struct AttentionArguments {
  int64_t heads = 1, head_dim = 0;  // of all heads: heads x head_dim features
  bool bias = true, causal = false;
  double dropout = 0;
  int64_t padding = -1;  // -1: no tokens among the inputs

  int64_t width() const { return heads * head_dim; }
  /// Without the tokens: 1 for self-attention, 2 for cross-attention.
  size_t values(size_t inputs) const { return inputs - (padding >= 0 ? 1 : 0); }
};

/// head_dim is known by now. Parameters: in_proj_weight, out_proj.weight and, with `bias`, in_proj_bias, out_proj.bias.
std::unique_ptr<Operation> plan_attention(const AttentionArguments& arguments, const PlanContext& context);

}  // namespace gpipe::layers
