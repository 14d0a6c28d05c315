// Column sums of a matrix [rows, columns], in ascending order of the rows.
#pragma once

#include "core/device/cpu/skeletons.h"

namespace gpipe::device::cpu {

/// out[c] (+)= sum over r of a[r, c]. The threads share the columns, in blocks of 64, so their number changes no bit.
inline void sum_columns(int threads, const float* a, int64_t rows, int64_t columns, float* out, bool accumulate) {
  constexpr int64_t block = 64;
  const int64_t blocks = (columns + block - 1) / block;
  each_part(threads, blocks, rows * columns, [=](int64_t first, int64_t last) {
    for (int64_t b = first; b < last; ++b) {
      const int64_t begin = b * block, count = std::min(block, columns - begin);
      std::array<float, block> sum{};
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t j = 0; j < count; ++j) sum[static_cast<size_t>(j)] += a[r * columns + begin + j];
      for (int64_t j = 0; j < count; ++j)
        out[begin + j] = accumulate ? out[begin + j] + sum[static_cast<size_t>(j)] : sum[static_cast<size_t>(j)];
    }
  });
}

}  // namespace gpipe::device::cpu
