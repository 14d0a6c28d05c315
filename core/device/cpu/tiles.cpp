#include "core/device/cpu/tiles.h"

#include "core/device/cpu/skeletons.h"
#include "core/device/cpu/transpose.h"

namespace gpipe::device::cpu {
namespace {

constexpr int64_t tile_rows = 16, tile_columns = 64;

// Calls fill(first row, rows, first column, columns, where) for each tile; threads share the columns of tiles.
template <class Fill>
void each_tile(int threads, const Tiles& t, float* to, const Fill& fill) {
  const int64_t down = (t.rows + tile_rows - 1) / tile_rows, right = (t.columns + tile_columns - 1) / tile_columns;
  each_row(threads, right, t.rows * tile_columns, [&](int64_t j) {
    for (int64_t i = 0; i < down; ++i) {
      const int64_t r = i * tile_rows, c = j * tile_columns;
      fill(r, std::min(tile_rows, t.rows - r), c, std::min(tile_columns, t.columns - c),
           to + i * t.row_stride + j * t.column_stride);
    }
  });
}

// A tile on the edge: element by element, zeros outside.
template <class At>
void fill_edge(int64_t rows, int64_t columns, float* tile, const At& at) {
  for (int64_t r = 0; r < tile_rows; ++r)
    for (int64_t c = 0; c < tile_columns; ++c) tile[r * tile_columns + c] = r < rows && c < columns ? at(r, c) : 0.0F;
}

}  // namespace

#if DNNL_VERSION_MAJOR >= 3
std::optional<Tiles> tiles_of(const Description&) { return std::nullopt; }
#else
std::optional<Tiles> tiles_of(const Description& description) {
  const dnnl_memory_desc_t& d = description.data;
  if (d.ndims != 2 || d.data_type != dnnl_f32 || d.format_kind != dnnl_blocked || d.offset0 != 0) return std::nullopt;
  const dnnl_blocking_desc_t& b = d.format_desc.blocking;
  const bool known = b.inner_nblks == 2 && b.inner_idxs[0] == 0 && b.inner_blks[0] == tile_rows && b.inner_idxs[1] == 1 &&
                     b.inner_blks[1] == tile_columns;
  if (!known || d.dims[1] < tile_columns) return std::nullopt;  // nothing but edges: no gain
  return Tiles{d.dims[0], d.dims[1], b.strides[0], b.strides[1]};
}
#endif

void fill_tiles(int threads, const Tiles& tiles, const float* from, float* to) {
  each_tile(threads, tiles, to, [&](int64_t r, int64_t rows, int64_t c, int64_t columns, float* tile) {
    const float* corner = from + r * tiles.columns + c;
    if (rows < tile_rows || columns < tile_columns) {
      fill_edge(rows, columns, tile, [&](int64_t i, int64_t j) { return corner[i * tiles.columns + j]; });
      return;
    }
    for (int64_t i = 0; i < tile_rows; ++i)
      std::memcpy(tile + i * tile_columns, corner + i * tiles.columns, tile_columns * sizeof(float));
  });
}

void fill_tiles_transposed(int threads, const Tiles& tiles, const float* from, float* to) {
  each_tile(threads, tiles, to, [&](int64_t r, int64_t rows, int64_t c, int64_t columns, float* tile) {
    const float* corner = from + c * tiles.rows + r;
    if (rows < tile_rows || columns < tile_columns) {
      fill_edge(rows, columns, tile, [&](int64_t i, int64_t j) { return corner[j * tiles.rows + i]; });
      return;
    }
    for (int64_t quarter = 0; quarter < tile_columns; quarter += lanes) {
      Lanes block[16];
      for (int64_t j = 0; j < lanes; ++j) block[j] = load(corner + (quarter + j) * tiles.rows);
      transpose(block);
      for (int64_t i = 0; i < tile_rows; ++i) store(tile + i * tile_columns + quarter, block[i]);
    }
  });
}

}  // namespace gpipe::device::cpu
