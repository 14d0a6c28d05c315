// Products of small matrices that lie in the cache: what attention is made of, for which a call of oneDNN costs as much as it
// computes. Sums run over the inner extent in ascending order with fused multiply-adds.
#pragma once

#include "core/device/cpu/lanes.h"

#include <algorithm>
#include <cstdint>

namespace gpipe::device::cpu {

/// Where element (i, k) of a matrix is: data[i * row + k * column].
struct Strided {
  const float* data;
  int64_t row, column;
};

namespace detail {

// Rows x 16 * Vectors of c stay in registers: 6 x 4 of them, 4 of b and one of a are 29 of the 32 of AVX-512.
template <int Rows, int Vectors>
inline void product_block(int64_t inner, const Strided& a, const float* b, int64_t b_row, float* c, int64_t c_row, bool add) {
  Lanes sum[Rows][Vectors];
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) sum[r][v] = add ? load(c + r * c_row + v * lanes) : Lanes{};
  for (int64_t k = 0; k < inner; ++k) {
    Lanes right[Vectors];
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) right[v] = load(b + k * b_row + v * lanes);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      const Lanes left = a.data[r * a.row + k * a.column] - Lanes{};
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) sum[r][v] = multiply_add(left, right[v], sum[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) store(c + r * c_row + v * lanes, sum[r][v]);
}

template <int Vectors>
void product_strip(int64_t rows, int64_t inner, Strided a, const float* b, int64_t b_row, float* c, int64_t c_row, bool add) {
  constexpr int height = 6;
  for (; rows >= height; rows -= height, a.data += height * a.row, c += height * c_row)
    product_block<height, Vectors>(inner, a, b, b_row, c, c_row, add);
  switch (rows) {
    case 5: return product_block<5, Vectors>(inner, a, b, b_row, c, c_row, add);
    case 4: return product_block<4, Vectors>(inner, a, b, b_row, c, c_row, add);
    case 3: return product_block<3, Vectors>(inner, a, b, b_row, c, c_row, add);
    case 2: return product_block<2, Vectors>(inner, a, b, b_row, c, c_row, add);
    case 1: return product_block<1, Vectors>(inner, a, b, b_row, c, c_row, add);
    default: return;
  }
}

}  // namespace detail

/// c [rows, columns] = a [rows, inner] b [inner, columns], or that added to c. columns: a multiple of sixteen.
inline void block_product(int64_t rows, int64_t columns, int64_t inner, const Strided& a, const float* b, int64_t b_row, float* c,
                          int64_t c_row, bool add) {
  for (int64_t first = 0; first < columns; first += 4 * lanes) {
    const float* right = b + first;
    float* to = c + first;
    switch (std::min<int64_t>((columns - first) / lanes, 4)) {
      case 4: detail::product_strip<4>(rows, inner, a, right, b_row, to, c_row, add); break;
      case 3: detail::product_strip<3>(rows, inner, a, right, b_row, to, c_row, add); break;
      case 2: detail::product_strip<2>(rows, inner, a, right, b_row, to, c_row, add); break;
      default: detail::product_strip<1>(rows, inner, a, right, b_row, to, c_row, add); break;
    }
  }
}

}  // namespace gpipe::device::cpu
