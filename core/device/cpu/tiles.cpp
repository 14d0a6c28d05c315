#include "core/device/cpu/tiles.h"

#include "core/device/cpu/skeletons.h"
#include "core/device/cpu/transpose.h"
#include "core/device/functors/rounding.h"

namespace gpipe::device::cpu {
namespace {

constexpr int64_t tile_lines = 16, tile_columns = 64;

/// What a tile is made of. `store`: sixteen columns of line `i`, from column `c` on; `row(r)`: these columns of a row of the
/// tile.
struct F32Tile {
  using Element = float;
  static constexpr int64_t rows = tile_lines;
  static int64_t place(int64_t r, int64_t c) { return r * tile_columns + c; }
  static float element(float x) { return x; }
  template <class Row>
  static void store(float* tile, int64_t i, int64_t c, const Row& row) {
    device::cpu::store(tile + place(i, c), row(i));
  }
};
struct Bf16Tile {
  using Element = uint16_t;
  static constexpr int64_t rows = 2 * tile_lines;
  static int64_t place(int64_t r, int64_t c) { return (r / 2 * tile_columns + c) * 2 + r % 2; }
  static uint16_t element(float x) { return Bf16::narrow(x); }
  template <class Row>
  static void store(uint16_t* tile, int64_t i, int64_t c, const Row& row) {
    const WordLanes pairs = bits_of(row(2 * i)) >> 16 | (bits_of(row(2 * i + 1)) & 0xFFFF0000U);
    std::memcpy(tile + place(2 * i, c), &pairs, sizeof pairs);
  }

 private:
  typedef uint32_t WordLanes __attribute__((vector_size(64)));
  /// Whose upper halves are the nearest bf16 numbers: Bf16::narrow in vector registers.
  static WordLanes bits_of(const Lanes& x) {
    WordLanes bits;
    std::memcpy(&bits, &x, sizeof bits);
    const WordLanes rounded = bits + 0x7FFFU + (bits >> 16 & 1U);
    return (bits & 0x7FFFFFFFU) > 0x7F800000U ? bits | 0x400000U : rounded;
  }
};

/// whole(first row, first column, tile) fills a tile, at(row, column) is an element where the edge cuts one. Threads share the
/// columns of tiles.
template <class Tile, class Whole, class At>
void fill(int threads, const Tiles& t, std::byte* to, const Whole& whole, const At& at) {
  auto* elements = reinterpret_cast<typename Tile::Element*>(to);
  const int64_t down = (t.rows + Tile::rows - 1) / Tile::rows, right = (t.columns + tile_columns - 1) / tile_columns;
  each_row(threads, right, t.rows * tile_columns, [&](int64_t j) {
    for (int64_t i = 0; i < down; ++i) {
      const int64_t r = i * Tile::rows, c = j * tile_columns;
      auto* tile = elements + i * t.row_stride + j * t.column_stride;
      if (r + Tile::rows <= t.rows && c + tile_columns <= t.columns) {
        whole(r, c, tile);
        continue;
      }
      for (int64_t row = 0; row < Tile::rows; ++row)  // on the edge: zeros outside
        for (int64_t column = 0; column < tile_columns; ++column) {
          const bool inside = r + row < t.rows && c + column < t.columns;
          tile[Tile::place(row, column)] = Tile::element(inside ? at(r + row, c + column) : 0.0F);
        }
    }
  });
}

template <class Tile>
void fill_plain(int threads, const Tiles& t, const float* from, std::byte* to) {
  const auto whole = [&](int64_t r, int64_t c, typename Tile::Element* tile) {
    for (int64_t line = 0; line < tile_lines; ++line)
      for (int64_t part = 0; part < tile_columns; part += lanes)
        Tile::store(tile, line, part, [&](int64_t row) { return load(from + (r + row) * t.columns + c + part); });
  };
  fill<Tile>(threads, t, to, whole, [&](int64_t r, int64_t c) { return from[r * t.columns + c]; });
}

template <class Tile>
void fill_transposed(int threads, const Tiles& t, const float* from, std::byte* to) {
  const auto whole = [&](int64_t r, int64_t c, typename Tile::Element* tile) {
    for (int64_t part = 0; part < tile_columns; part += lanes) {
      Lanes blocks[Tile::rows / lanes][lanes];
      for (int64_t half = 0; half < Tile::rows / lanes; ++half) {
        for (int64_t j = 0; j < lanes; ++j) blocks[half][j] = load(from + (c + part + j) * t.rows + r + half * lanes);
        transpose(blocks[half]);
      }
      for (int64_t line = 0; line < tile_lines; ++line)
        Tile::store(tile, line, part, [&](int64_t row) { return blocks[row / lanes][row % lanes]; });
    }
  };
  fill<Tile>(threads, t, to, whole, [&](int64_t r, int64_t c) { return from[c * t.rows + r]; });
}

}  // namespace

#if DNNL_VERSION_MAJOR >= 3
std::optional<Tiles> tiles_of(const Description&) { return std::nullopt; }
#else
std::optional<Tiles> tiles_of(const Description& description) {
  const dnnl_memory_desc_t& d = description.data;
  const bool bf16 = d.data_type == dnnl_bf16;
  if (d.ndims != 2 || (d.data_type != dnnl_f32 && !bf16) || d.format_kind != dnnl_blocked || d.offset0 != 0) return std::nullopt;
  const dnnl_blocking_desc_t& b = d.format_desc.blocking;
  const bool lines =
      b.inner_idxs[0] == 0 && b.inner_blks[0] == tile_lines && b.inner_idxs[1] == 1 && b.inner_blks[1] == tile_columns;
  const bool pairs = b.inner_nblks == 3 && b.inner_idxs[2] == 0 && b.inner_blks[2] == 2;
  if (!lines || !(bf16 ? pairs : b.inner_nblks == 2)) return std::nullopt;
  if (d.dims[1] < tile_columns) return std::nullopt;  // nothing but edges: no gain
  return Tiles{bf16, d.dims[0], d.dims[1], b.strides[0], b.strides[1]};
}
#endif

void fill_tiles(int threads, const Tiles& tiles, const float* from, std::byte* to) {
  if (tiles.bf16)
    fill_plain<Bf16Tile>(threads, tiles, from, to);
  else
    fill_plain<F32Tile>(threads, tiles, from, to);
}

void fill_tiles_transposed(int threads, const Tiles& tiles, const float* from, std::byte* to) {
  if (tiles.bf16)
    fill_transposed<Bf16Tile>(threads, tiles, from, to);
  else
    fill_transposed<F32Tile>(threads, tiles, from, to);
}

}  // namespace gpipe::device::cpu
