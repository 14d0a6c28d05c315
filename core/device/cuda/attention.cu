#include "core/device/cuda/attention.h"
#include "core/device/cuda/draws.h"
#include "core/device/cuda/skeletons.h"
#include "core/device/functors/math.h"

#include <cmath>

namespace gpipe::device::cuda {
namespace {

/// What a row (a sample, a head and a query) of the tile is.
struct Row {
  int64_t sample, head, query;
  GPIPE_KERNEL static Row of(const AttentionTile& tile, int64_t row) {
    const int64_t head = row / tile.rows;
    return {head / tile.heads, head % tile.heads, tile.first + row % tile.rows};
  }
  /// Of [samples, heads, queries].
  GPIPE_KERNEL int64_t place(const AttentionTile& tile) const { return (sample * tile.heads + head) * tile.queries + query; }
};

GPIPE_KERNEL bool sees(const AttentionTile& tile, const Row& row, int64_t key) {
  return (!tile.causal || key <= row.query) &&
         (tile.tokens == nullptr || tile.tokens[row.sample * tile.keys + key] != tile.padding);
}

// 0 or 1 / (1 - p): the CPU's draws, whose rows are padded to 64 keys.
GPIPE_KERNEL float factor(const AttentionTile& tile, const Draws& draws, const Row& row, int64_t key) {
  if (!tile.drops) return 1.0F;
  const int64_t pitch = (tile.keys + 63) / 64 * 64;
  const uint64_t at = static_cast<uint64_t>((row.head * tile.queries + row.query) * pitch + key);
  const float unit = Draws::to_unit(draws.word(row.sample, at));
  return unit >= tile.p ? tile.keep : 0.0F;
}

}  // namespace

void point_to_heads(const Queue& queue, const AttentionTile& tile, const std::array<HeadMatrices, most_head_matrices>& matrices,
                    size_t count, float** pointers) {
  const int64_t heads = tile.heads, each_kind = tile.samples * heads;
  each(queue, "attention pointers", static_cast<int64_t>(count) * each_kind, [=] GPIPE_KERNEL(int64_t i) {
    const HeadMatrices& all = matrices[static_cast<size_t>(i / each_kind)];
    const int64_t own = i % each_kind;
    pointers[i] = all.data + own / heads * all.sample + own % heads * all.head;
  });
}

void attention_probabilities(const Queue& queue, const AttentionTile& tile, float* all_scores, float* logsumexp) {
  const Draws draws = Draws::of(tile.key);
  const int64_t count = tile.samples * tile.heads * tile.rows;
  rows(queue, "attention probabilities", count, tile.seen, [=] GPIPE_KERNEL(auto& team, int64_t index) {
    const Row row = Row::of(tile, index);
    float* scores = all_scores + index * tile.pitch;
    const float unseen = -INFINITY;
    const float most = team.reduce(
        tile.seen, unseen, [&](int64_t k) { return sees(tile, row, k) ? scores[k] : unseen; },
        [](float a, float b) { return b > a ? b : a; });
    team.each(tile.seen, [&](int64_t k) {
      const bool counts = sees(tile, row, k) && scores[k] != unseen;
      scores[k] = counts ? exp_f32(scores[k] - most) : 0.0F;  // NaN stays NaN
    });
    const double sum = team.template sum<double>(tile.seen, [&](int64_t k) { return static_cast<double>(scores[k]); });
    const bool none = sum == 0;
    team.once([&] { logsumexp[row.place(tile)] = none ? 0.0F : most + static_cast<float>(std::log(sum)); });
    const float share = none ? 0.0F : static_cast<float>(1 / sum);
    team.each(tile.seen, [&](int64_t k) { scores[k] = scores[k] * share * factor(tile, draws, row, k); });
  });
}

void attention_gradients(const Queue& queue, const AttentionTile& tile, float* all_scores, float* all_dscores,
                         const float* context, const float* dcontext, const float* logsumexp) {
  const Draws draws = Draws::of(tile.key);
  rows(queue, "attention gradient", tile.samples * tile.heads * tile.rows, std::max(tile.seen, tile.head_dim),
       [=] GPIPE_KERNEL(auto& team, int64_t index) {
         const Row row = Row::of(tile, index);
         float *scores = all_scores + index * tile.pitch, *dscores = all_dscores + index * tile.pitch;
         const int64_t at = ((row.sample * tile.queries + row.query) * tile.heads + row.head) * tile.head_dim;
         const float* y = context + at;
         const float* dy = dcontext + at;
         // The sum over keys of probability times its gradient.
         const float product = static_cast<float>(team.template sum<double>(
             tile.head_dim, [&](int64_t i) { return static_cast<double>(y[i]) * static_cast<double>(dy[i]); }));
         const float total = logsumexp[row.place(tile)];
         team.each(tile.seen, [&](int64_t k) {
           const float p = sees(tile, row, k) ? exp_f32(scores[k] - total) : 0.0F;
           const float kept = factor(tile, draws, row, k);
           dscores[k] = p * (dscores[k] * kept - product) * tile.scale;
           scores[k] = p * kept;
         });
       });
}

void replace_keys(const Queue& queue, const float* dkey, const float* dvalue, int64_t rows, int64_t columns, const HeadRows& key,
                  const HeadRows& value) {
  each(queue, "attention key gradient", rows * columns, [=] GPIPE_KERNEL(int64_t i) {
    const int64_t row = i / columns, column = i % columns;
    key.data[row * key.stride + column] = dkey[i];
    value.data[row * value.stride + column] = dvalue[i];
  });
}

}  // namespace gpipe::device::cuda
