// The `init` arguments of layers with weights: a word or a one-key map, by PyTorch's names and defaults (torch.nn.init), and
// TensorFlow's variance scaling.
#pragma once

#include "core/base/problems.h"
#include "core/base/tree.h"
#include "core/graph/layer.h"

#include <optional>
#include <string>

namespace gpipe::layers {

/// A rule that becomes a distribution once the weight's fans are known.
struct InitRule {
  /// Of kaiming and variance scaling: which number of connections keeps the variance; `both`: their mean (xavier).
  enum class Fan { fan_in, fan_out, both };

  graph::Init init;         // where no fan is asked for: all of it
  std::optional<Fan> fan;   // else the standard deviation is init.magnitude / sqrt(fan)
  double to_magnitude = 1;  // what the standard deviation is times to be init.magnitude: sqrt(3) for uniform

  graph::Init resolve(int64_t fan_in, int64_t fan_out_count) const;
};

/// What starts so: a matrix [out, in], filters [out, in, height, width], a vector beside one of them, whose fans it takes, or a
/// vector alone. PyTorch has eye and sparse for matrices alone, dirac for filters alone, and orthogonal for both.
enum class InitTarget { matrix, filters, vector, lone_vector };

/// Null: PyTorch's default for the layer, which the caller knows.
std::optional<InitRule> read_init(const base::Tree& tree, const std::string& path, base::Problems& problems,
                                  InitTarget target = InitTarget::matrix);
extern const char* const init_help;

/// U(-1/sqrt(fan_in), 1/sqrt(fan_in)): what PyTorch's conv2d and linear start weights and biases with.
graph::Init default_init(int64_t fan_in);

}  // namespace gpipe::layers
