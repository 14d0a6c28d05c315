// A block of sixteen rows of sixteen, turned over in vector registers.
#pragma once

#include "core/device/cpu/lanes.h"

namespace gpipe::device::cpu {

typedef int32_t Order __attribute__((vector_size(64)));

/// Sixteen by sixteen. Each round moves the uppermost bit of the row's number to the end of the column's; four change places.
inline void transpose(Lanes (&block)[16]) {
  constexpr Order low = {0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23};
  constexpr Order high = {8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  for (int round = 0; round < 4; ++round) {
    Lanes next[16];
    for (int i = 0; i < 8; ++i) {
      next[2 * i] = __builtin_shuffle(block[i], block[i + 8], low);
      next[2 * i + 1] = __builtin_shuffle(block[i], block[i + 8], high);
    }
    std::memcpy(block, next, sizeof next);
  }
}

}  // namespace gpipe::device::cpu
