// The `init` arguments of layers with weights: a word or a one-key map, by PyTorch's names and defaults (torch.nn.init).
#pragma once

#include "core/base/problems.h"
#include "core/base/tree.h"
#include "core/graph/layer.h"

#include <optional>
#include <string>

namespace gpipe::layers {

/// A rule that becomes a distribution once the weight's fans are known.
struct InitRule {
  enum class Kind { kaiming_uniform, kaiming_normal, xavier_uniform, xavier_normal, normal, truncated_normal, uniform, constant };
  Kind kind = Kind::kaiming_uniform;
  bool fan_out = false;  // kaiming
  double gain = 1;       // kaiming, xavier
  double mean = 0, std = 1;
  double bound = 1;
  double value = 0;

  graph::Init resolve(int64_t fan_in, int64_t fan_out_count) const;
};

/// Null: PyTorch's default for the layer, which the caller knows.
std::optional<InitRule> read_init(const base::Tree& tree, const std::string& path, base::Problems& problems);
extern const char* const init_help;

/// U(-1/sqrt(fan_in), 1/sqrt(fan_in)): what PyTorch's conv2d and linear start weights and biases with.
graph::Init default_init(int64_t fan_in);

}  // namespace gpipe::layers
