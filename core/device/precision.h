// Precision: what the factors of products (convolution, linear) are rounded to. Sums, and everything else, are f32.
#pragma once

#include <array>
#include <string>

namespace gpipe::device {

/// tf32: 10 bits of fraction, 8 of exponent; bf16: 7 and 8.
enum class Precision { f32, tf32, bf16 };
constexpr std::array<const char*, 3> k_precision_names{"f32", "tf32", "bf16"};
constexpr const char* name_of(Precision precision) { return k_precision_names[static_cast<size_t>(precision)]; }

}  // namespace gpipe::device
