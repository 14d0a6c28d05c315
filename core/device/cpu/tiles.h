// The layout that oneDNN's matmul wants its right-hand matrix B [rows, columns] in: tiles of 64 columns and 16 lines, each
// contiguous and line by line, padded with zeros. A line is a row of f32, or two rows of bf16 whose elements take turns. Filling
// it ourselves takes a fifth of the time of oneDNN's general copy, which matters because it happens once an update for every
// linear layer.
#pragma once

#include "core/device/cpu/onednn.h"

#include <cstddef>
#include <cstdint>
#include <optional>

namespace gpipe::device::cpu {

struct Tiles {
  bool bf16;
  int64_t rows, columns;              // of B, without padding
  int64_t row_stride, column_stride;  // elements from one tile to the next one down, and to the next one right
};

/// Nothing when the description is of another layout, or too narrow to gain; oneDNN's own copy serves then.
std::optional<Tiles> tiles_of(const Description& description);

/// B[r, c] = from[r * columns + c], rounded if need be.
void fill_tiles(int threads, const Tiles& tiles, const float* from, std::byte* to);
/// B[r, c] = from[c * rows + r], likewise.
void fill_tiles_transposed(int threads, const Tiles& tiles, const float* from, std::byte* to);

}  // namespace gpipe::device::cpu
