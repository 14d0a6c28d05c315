// Sixty-four words of a Philox stream at once, in vector registers: what dropout draws its masks with.
#pragma once

#include "core/base/rng.h"

#include <array>
#include <cstdint>
#include <cstring>

namespace gpipe::device::cpu {

constexpr int64_t draw_step = 64;  // numbers drawn at once: sixteen blocks of four
typedef uint32_t Words __attribute__((vector_size(64)));
typedef uint64_t Doubles __attribute__((vector_size(64)));

struct Product {
  Words high, low;
};
// 32 x 32 -> 64 bits in every lane, even and odd lanes apart.
inline Product multiply(const Words& a, uint32_t b) {
  const Doubles pairs = reinterpret_cast<Doubles>(a);
  const Doubles even = (pairs & 0xffffffffULL) * b, odd = (pairs >> 32) * b;
  const Doubles high = (even >> 32) | (odd & ~0xffffffffULL), low = (even & 0xffffffffULL) | (odd << 32);
  return {reinterpret_cast<Words>(high), reinterpret_cast<Words>(low)};
}

/// Blocks first, first + 1, ... of a Philox stream: Random123's rounds on sixteen counters at a time, in vector registers.
inline void draw(const base::Philox& philox, uint64_t first, std::array<uint32_t, draw_step>& out) {
  const auto start = philox.counter(first);
  auto key = philox.key();
  Words a = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  a += start[0];  // `first` is a multiple of sixteen: no carry into the next word
  Words b = Words{} + start[1], c = Words{} + start[2], d = Words{} + start[3];
  for (int round = 0; round < 10; ++round) {
    const Product p = multiply(a, PHILOX_M4x32_0), q = multiply(c, PHILOX_M4x32_1);
    a = q.high ^ b ^ key[0];
    b = q.low;
    c = p.high ^ d ^ key[1];
    d = p.low;
    key[0] += PHILOX_W32_0;
    key[1] += PHILOX_W32_1;
  }
  // Four vectors of a word each -> sixteen blocks of four words.
  const Words low = {0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23};
  const Words high = {8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const Doubles low_pairs = {0, 8, 1, 9, 2, 10, 3, 11}, high_pairs = {4, 12, 5, 13, 6, 14, 7, 15};
  const auto ab_low = reinterpret_cast<Doubles>(__builtin_shuffle(a, b, low));
  const auto ab_high = reinterpret_cast<Doubles>(__builtin_shuffle(a, b, high));
  const auto cd_low = reinterpret_cast<Doubles>(__builtin_shuffle(c, d, low));
  const auto cd_high = reinterpret_cast<Doubles>(__builtin_shuffle(c, d, high));
  const Doubles all[4] = {__builtin_shuffle(ab_low, cd_low, low_pairs), __builtin_shuffle(ab_low, cd_low, high_pairs),
                          __builtin_shuffle(ab_high, cd_high, low_pairs), __builtin_shuffle(ab_high, cd_high, high_pairs)};
  std::memcpy(out.data(), all, sizeof all);
}

}  // namespace gpipe::device::cpu
