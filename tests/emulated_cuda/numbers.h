// Number types of the libraries: f32, bf16, f16; rounding to nearest even; TF32's ten bits.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace gpipe::emulated {

enum class Number { f32, bf16, f16 };
constexpr size_t bytes_of(Number type) { return type == Number::f32 ? 4 : 2; }

/// What a library makes of f32 inputs before it multiplies them.
enum class Rounding { none, tf32, bf16, f16 };

/// Keeps `kept` bits of the fraction of an f32, to nearest even. NaN and infinity stay.
inline float round_fraction(float x, int kept) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7f800000u) == 0x7f800000u) return x;
  const int dropped = 23 - kept;
  const uint32_t half = (1u << (dropped - 1)) - 1 + ((bits >> dropped) & 1u);
  return std::bit_cast<float>((bits + half) & ~((1u << dropped) - 1));
}

inline uint16_t to_bf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if (std::isnan(x)) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(round_fraction(x, 7)) >> 16);
}
inline float from_bf16(uint16_t x) { return std::bit_cast<float>(uint32_t{x} << 16); }

inline uint16_t to_f16(float x) {
  const uint32_t sign = std::bit_cast<uint32_t>(x) >> 16 & 0x8000u;
  const float size = std::fabs(x);
  if (std::isnan(x)) return static_cast<uint16_t>(sign | 0x7e00u);
  if (size >= 65520.0f) return static_cast<uint16_t>(sign | 0x7c00u);
  if (size < 0x1p-14f) return static_cast<uint16_t>(sign | static_cast<uint32_t>(std::nearbyint(size * 0x1p24f)));
  const uint32_t bits = std::bit_cast<uint32_t>(round_fraction(size, 10));
  return static_cast<uint16_t>(sign | ((bits >> 13) - (112u << 10)));
}
inline float from_f16(uint16_t x) {
  const uint32_t sign = (x & 0x8000u) << 16;
  const uint32_t exponent = x >> 10 & 31u;
  const uint32_t fraction = x & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  return std::copysign(static_cast<float>(fraction) * 0x1p-24f, std::bit_cast<float>(sign));
}

inline float rounded(float x, Rounding rounding) {
  switch (rounding) {
    case Rounding::tf32: return round_fraction(x, 10);
    case Rounding::bf16: return from_bf16(to_bf16(x));
    case Rounding::f16: return from_f16(to_f16(x));
    case Rounding::none: break;
  }
  return x;
}

inline float load(const void* data, Number type, int64_t at) {
  if (type == Number::f32) return static_cast<const float*>(data)[at];
  const uint16_t bits = static_cast<const uint16_t*>(data)[at];
  return type == Number::bf16 ? from_bf16(bits) : from_f16(bits);
}

inline void store(void* data, Number type, int64_t at, float value) {
  if (type == Number::f32) {
    static_cast<float*>(data)[at] = value;
  } else {
    static_cast<uint16_t*>(data)[at] = type == Number::bf16 ? to_bf16(value) : to_f16(value);
  }
}

}  // namespace gpipe::emulated
