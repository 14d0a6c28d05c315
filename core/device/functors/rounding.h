// The narrow number formats that factors of products are rounded to, written once for every backend: to the nearest number
// that the format has, ties to even. No branches and no calls, so that a loop over them becomes vector code. NaN stays NaN.
//
// A format has `nearest(x)`, the number as f32. What is stored in it is `narrow(x)`, of which `widen` makes f32 again.
#pragma once

#include "core/device/functors/update.h"

#include <bit>
#include <cstdint>

namespace gpipe::device {

/// x with `kept` bits of fraction; what is beyond the largest such number becomes infinity.
template <int kept>
GPIPE_BOTH inline float nearest_fraction(float x) {
  constexpr uint32_t last = 1U << (23 - kept);  // the last bit that stays
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = bits + (last / 2 - 1) + ((bits & last) != 0 ? 1U : 0U);
  const uint32_t quiet = bits | 0x400000U;  // of a NaN, whose fraction might be in the bits that go
  const bool is_nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
  return std::bit_cast<float>((is_nan ? quiet : rounded) & ~(last - 1));
}

struct F32 {
  using Stored = float;
  GPIPE_BOTH static float narrow(float x) { return x; }
  GPIPE_BOTH static float widen(float x) { return x; }
};

/// NVIDIA's TensorFloat-32, which is stored as f32.
struct Tf32 {
  GPIPE_BOTH static float nearest(float x) { return nearest_fraction<10>(x); }
};

struct Bf16 {
  using Stored = uint16_t;
  GPIPE_BOTH static float nearest(float x) { return nearest_fraction<7>(x); }
  GPIPE_BOTH static uint16_t narrow(float x) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(nearest(x)) >> 16); }
  GPIPE_BOTH static float widen(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }
};

/// IEEE 754's binary16. From 65520 on it is infinity; below 2^-14 its numbers are multiples of 2^-24.
struct F16 {
  using Stored = uint16_t;
  GPIPE_BOTH static float nearest(float x) {
    const uint32_t sign = std::bit_cast<uint32_t>(x) & 0x80000000U;
    const float size = std::bit_cast<float>(std::bit_cast<uint32_t>(x) ^ sign);
    const float normal = nearest_fraction<10>(size);
    const float bounded = normal > 65504.0F ? std::bit_cast<float>(0x7F800000U) : normal;  // written so that NaN stays
    const float subnormal = (size + 0.5F) - 0.5F;  // numbers of [0.5, 1) are multiples of 2^-24
    return std::bit_cast<float>(std::bit_cast<uint32_t>(size < 0x1p-14F ? subnormal : bounded) | sign);
  }
  GPIPE_BOTH static uint16_t narrow(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(nearest(x));
    const uint32_t sign = bits >> 16 & 0x8000U, size = bits & 0x7FFFFFFFU;
    const uint32_t normal = (size >> 13) - (112U << 10);  // the exponent counts from 15, not from 127
    // 0.5 + n 2^-24 has n in its low bits.
    const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(size) + 0.5F) - 0x3F000000U;
    const uint32_t beyond = size > 0x7F800000U ? 0x7E00U : 0x7C00U;
    return static_cast<uint16_t>(sign | (size >= 0x7F800000U ? beyond : size < 0x38800000U ? subnormal : normal));
  }
  GPIPE_BOTH static float widen(uint16_t bits) {
    const uint32_t sign = (bits & 0x8000U) << 16, size = bits & 0x7FFFU;
    const uint32_t subnormal = std::bit_cast<uint32_t>(static_cast<float>(size & 0x3FFU) * 0x1p-24F);
    const uint32_t normal = (size << 13) + (112U << 23), beyond = 0x7F800000U | size << 13;
    return std::bit_cast<float>(sign | (size >= 0x7C00U ? beyond : size >= 0x400U ? normal : subnormal));
  }
};

}  // namespace gpipe::device
