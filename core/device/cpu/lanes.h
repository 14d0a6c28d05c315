// Sixteen floats at once, for loops that run down the rows of [rows, channels] with one accumulator a channel: what a
// compiler does not keep in registers by itself when the number of channels is known only at run time.
//
// The vector type is GCC's, of a fixed width on every processor, so that results do not depend on the instruction set.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#if defined(__FMA__)
#include <immintrin.h>
#else
#include <cmath>
#endif

namespace gpipe::device::cpu {

constexpr int64_t lanes = 16;
typedef float Lanes __attribute__((vector_size(64)));

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
/// The last `count` < 16 channels of a row; the other lanes are 0.
inline Lanes load(const float* from, int64_t count) {
  Lanes x = {};
  std::memcpy(&x, from, static_cast<size_t>(count) * sizeof(float));
  return x;
}
inline void store(float* to, const Lanes& x, int64_t count) { std::memcpy(to, &x, static_cast<size_t>(count) * sizeof(float)); }

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
template <class Count>
void store_block(float* to, const Lanes& x, Count count) {
  if constexpr (std::is_same_v<Count, int64_t>)
    store(to, x, count);
  else
    store(to, x);
}

}  // namespace gpipe::device::cpu
