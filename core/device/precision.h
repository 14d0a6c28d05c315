// Precision: what the factors of products (convolution, linear) are rounded to. Sums, and everything else, are f32.
#pragma once

#include <array>
#include <string>

namespace gpipe::device {

/// Bits of fraction and of exponent: f32 23 and 8, tf32 10 and 8, bf16 7 and 8, f16 10 and 5 (65504 is its largest number).
enum class Precision { f32, tf32, bf16, f16 };
constexpr std::array<const char*, 4> k_precision_names{"f32", "tf32", "bf16", "f16"};
constexpr const char* name_of(Precision precision) { return k_precision_names[static_cast<size_t>(precision)]; }

}  // namespace gpipe::device
