// A tile of attention: up to 64 queries by 64 keys of one head, copied out of the strided rows so that it lies in the cache
// without conflicts, features padded to sixteens with zeros.
#pragma once

#include "core/device/cpu/draw.h"
#include "core/device/cpu/skeletons.h"
#include "core/device/cpu/transpose.h"
#include "core/device/functors/math.h"

#include <limits>

namespace gpipe::device::cpu {

constexpr int64_t tile_edge = 64;  // queries or keys; the row pitch of scores
constexpr float unseen = -std::numeric_limits<float>::infinity();

inline int64_t padded(int64_t count) { return (count + lanes - 1) / lanes * lanes; }

/// to [rows, padded(width)] = from, rows `stride` apart.
inline void pack_rows(const float* from, int64_t stride, int64_t rows, int64_t width, float* to) {
  const int64_t pitch = padded(width);
  for (int64_t r = 0; r < rows; ++r)
    each_block(width, [&](int64_t c, auto count) { store(to + r * pitch + c, load_block(from + r * stride + c, count)); });
}

/// The way back: the padding is left out.
inline void unpack_rows(const float* from, int64_t rows, int64_t width, float* to, int64_t stride) {
  const int64_t pitch = padded(width);
  for (int64_t r = 0; r < rows; ++r)
    each_block(width, [&](int64_t c, auto count) { store_block(to + r * stride + c, load(from + r * pitch + c), count); });
}

/// to [padded(width), tile_edge] = from^T; columns from `rows` up to the next sixteen are zero.
inline void pack_transposed(const float* from, int64_t stride, int64_t rows, int64_t width, float* to) {
  for (int64_t first = 0; first < rows; first += lanes)
    each_block(width, [&](int64_t c, auto count) {
      Lanes block[lanes];
      for (int64_t r = 0; r < lanes; ++r)
        block[r] = first + r < rows ? load_block(from + (first + r) * stride + c, count) : Lanes{};
      transpose(block);
      for (int64_t i = 0; i < lanes; ++i) store(to + (c + i) * tile_edge + first, block[i]);
    });
}

/// Which scores of a tile count: `bias` [tile_edge] is 0 or `unseen` for each key.
struct Mask {
  float scale;
  const float* bias;
  bool causal;
  int64_t ahead;  // the first query's position less the first key's

  /// row = scale * row + bias, and `unseen` behind what query `r` of the tile may see.
  void apply(int64_t r, float* row, int64_t width) const {
    if (causal)
      for (int64_t c = std::max<int64_t>(ahead + r + 1, 0); c < width; ++c) row[c] = unseen;
    for (int64_t c = 0; c < width; c += lanes) store(row + c, load(row + c) * scale + load(bias + c));
  }
};

/// row = e^(row - shift), 0 where a score is not seen. NaN stays NaN.
inline void exponents(float* row, int64_t width, float shift) {
#pragma GCC ivdep
  for (int64_t c = 0; c < width; ++c) {
    const float power = exp_f32(row[c] - shift);
    row[c] = row[c] == unseen ? 0.0F : power;
  }
}

inline float largest(const float* row, int64_t width) {
  Lanes best = load(row);
  for (int64_t c = lanes; c < width; c += lanes) {
    const Lanes x = load(row + c);
    best = x > best ? x : best;
  }
  float most = best[0];
  for (int64_t i = 1; i < lanes; ++i) most = best[i] > most ? best[i] : most;
  return most;
}

inline float sum_of(const float* row, int64_t width) {
  Lanes sum = {};
  for (int64_t c = 0; c < width; c += lanes) sum += load(row + c);
  float total = 0;
  for (int64_t i = 0; i < lanes; ++i) total += sum[i];
  return total;
}

inline float dot(const float* a, const float* b, int64_t count) {
  Lanes sum = {};
  each_block(count, [&](int64_t c, auto n) { sum = multiply_add(load_block(a + c, n), load_block(b + c, n), sum); });
  float total = 0;
  for (int64_t i = 0; i < lanes; ++i) total += sum[i];
  return total;
}

}  // namespace gpipe::device::cpu
