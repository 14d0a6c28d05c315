// The windows of convolutions and pools: kernel, stride, dilation and padding as the configuration writes them, and where
// they lie on an input of a given extent.
#pragma once

#include "core/base/problems.h"
#include "core/base/tree.h"
#include "core/tensor/tensor.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace gpipe::layers {

/// `valid`: none. `same`: as much as makes the output ceil(input / stride) long; of an odd number the end gets the larger
/// half. For stride 1 that is PyTorch's `same`, for other strides, which PyTorch refuses, TensorFlow's. Else numbers.
struct Padding {
  bool same = false;
  std::array<int64_t, 4> sides{};  // top, bottom, left, right
};

/// `same`, `valid`, a number, [height, width], or [top, bottom, left, right]; null: none.
Padding read_padding(const base::Tree& tree, const std::string& path, base::Problems& problems);
extern const char* const padding_schema;

/// One number for both axes, or [height, width].
std::array<int64_t, 2> read_pair(const std::vector<int64_t>& values, const base::Location& where, const std::string& path,
                                 base::Problems& problems);

struct Window {
  std::array<int64_t, 2> kernel{1, 1}, stride{1, 1}, dilation{1, 1};
  Padding padding;
};

struct Placement {
  std::array<int64_t, 2> out;
  int64_t top, bottom, left, right;
};

/// Throws ConfigError naming the layer and both shapes when the kernel does not fit.
Placement place(const char* layer, const Window& window, const tensor::Shape& image);

}  // namespace gpipe::layers
