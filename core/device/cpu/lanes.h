// Sixteen floats at once, for loops that run down the rows of [rows, channels] with one accumulator a channel: what a
// compiler does not keep in registers by itself when the number of channels is known only at run time.
//
// The vector type is GCC's, of a fixed width on every processor, so that results do not depend on the instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#if defined(__FMA__) || defined(__AVX512F__)
#include <immintrin.h>
#else
#include <cmath>
#endif

namespace gpipe::device::cpu {

constexpr int64_t lanes = 16;
typedef float Lanes __attribute__((vector_size(64)));
typedef int32_t IntLanes __attribute__((vector_size(64)));
typedef uint8_t ByteLanes __attribute__((vector_size(16)));

inline Lanes load(const float* from) {
  Lanes x;
  std::memcpy(&x, from, sizeof x);
  return x;
}
inline void store(float* to, const Lanes& x) { std::memcpy(to, &x, sizeof x); }
/// a * b + c, rounded once: the same bits on every processor, and on one without such an instruction slow.
inline Lanes multiply_add(const Lanes& a, const Lanes& b, const Lanes& c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__FMA__)
  __m256 x[2], y[2], z[2];
  std::memcpy(x, &a, sizeof x);
  std::memcpy(y, &b, sizeof y);
  std::memcpy(z, &c, sizeof z);
  for (int half = 0; half < 2; ++half) z[half] = _mm256_fmadd_ps(x[half], y[half], z[half]);
  Lanes result;
  std::memcpy(&result, z, sizeof result);
  return result;
#else
  Lanes result;
  for (int64_t i = 0; i < lanes; ++i) result[i] = std::fma(a[i], b[i], c[i]);
  return result;
#endif
}
// The last `count` < 16 channels of a row; the other lanes are 0. By masks where there are any: a copy of a length that is only
// known at run time takes thirty times as long.
#if defined(__AVX512F__)
inline __mmask16 first_lanes(int64_t count) { return static_cast<__mmask16>((1U << static_cast<unsigned>(count)) - 1U); }
inline Lanes load(const float* from, int64_t count) { return _mm512_maskz_loadu_ps(first_lanes(count), from); }
inline void store(float* to, const Lanes& x, int64_t count) { _mm512_mask_storeu_ps(to, first_lanes(count), x); }
inline Lanes keep_first(const Lanes& x, int64_t count) { return _mm512_maskz_mov_ps(first_lanes(count), x); }
#else
inline Lanes load(const float* from, int64_t count) {
  Lanes x = {};
  std::memcpy(&x, from, static_cast<size_t>(count) * sizeof(float));
  return x;
}
inline void store(float* to, const Lanes& x, int64_t count) { std::memcpy(to, &x, static_cast<size_t>(count) * sizeof(float)); }
inline Lanes keep_first(Lanes x, int64_t count) {
  for (int64_t i = count; i < lanes; ++i) x[i] = 0;
  return x;
}
#endif

// Numbers of 0 to 255, kept as bytes; `count` may be sixteen.
#if defined(__AVX512BW__) && defined(__AVX512VL__)
inline IntLanes load_bytes(const std::byte* from, int64_t count) {
  return reinterpret_cast<IntLanes>(
      _mm512_maskz_cvtepu8_epi32(first_lanes(lanes), _mm_maskz_loadu_epi8(first_lanes(count), from)));
}
inline void store_bytes(std::byte* to, const IntLanes& x, int64_t count) {
  _mm512_mask_cvtepi32_storeu_epi8(to, first_lanes(count), reinterpret_cast<__m512i>(x));
}
#else
inline IntLanes load_bytes(const std::byte* from, int64_t count) {
  ByteLanes x = {};
  std::memcpy(&x, from, static_cast<size_t>(count));
  return __builtin_convertvector(x, IntLanes);
}
inline void store_bytes(std::byte* to, const IntLanes& x, int64_t count) {
  const ByteLanes small = __builtin_convertvector(x, ByteLanes);
  std::memcpy(to, &small, static_cast<size_t>(count));
}
#endif

/// Calls f(channel, count) for each block of sixteen channels, `count` a compile-time 16, and for what is left, `count` a
/// number: the loads and stores below then take the fast form wherever they can.
template <class F>
void each_block(int64_t channels, const F& f) {
  int64_t c = 0;
  for (; c + lanes <= channels; c += lanes) f(c, std::integral_constant<int64_t, lanes>{});
  if (c < channels) f(c, channels - c);
}
template <class Count>
Lanes load_block(const float* from, Count count) {
  if constexpr (std::is_same_v<Count, int64_t>)
    return load(from, count);
  else
    return load(from);
}
/// Zero in the lanes that a block of `count` channels does not have.
template <class Count>
Lanes only(const Lanes& x, Count count) {
  if constexpr (std::is_same_v<Count, int64_t>)
    return keep_first(x, count);
  else
    return x;
}
template <class Count>
void store_block(float* to, const Lanes& x, Count count) {
  if constexpr (std::is_same_v<Count, int64_t>)
    store(to, x, count);
  else
    store(to, x);
}

}  // namespace gpipe::device::cpu
