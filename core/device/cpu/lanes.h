// Sixteen floats at once, for loops that run down the rows of [rows, channels] with one accumulator a channel: what a
// compiler does not keep in registers by itself when the number of channels is known only at run time.
//
// The vector type is GCC's, of a fixed width on every processor, so that results do not depend on the instruction set.
#pragma once

#include <cstdint>
#include <cstring>

namespace gpipe::device::cpu {

constexpr int64_t lanes = 16;
typedef float Lanes __attribute__((vector_size(64)));

inline Lanes load(const float* from) {
  Lanes x;
  std::memcpy(&x, from, sizeof x);
  return x;
}
inline void store(float* to, const Lanes& x) { std::memcpy(to, &x, sizeof x); }
/// The last `count` < 16 channels of a row; the other lanes are 0.
inline Lanes load(const float* from, int64_t count) {
  Lanes x = {};
  std::memcpy(&x, from, static_cast<size_t>(count) * sizeof(float));
  return x;
}
inline void store(float* to, const Lanes& x, int64_t count) { std::memcpy(to, &x, static_cast<size_t>(count) * sizeof(float)); }

}  // namespace gpipe::device::cpu
