#include "core/device/cuda/attention.h"
#include "core/device/cuda/draws.h"
#include "core/device/cuda/skeletons.h"
#include "core/device/functors/math.h"

#include <cmath>

namespace gpipe::device::cuda {
namespace {

/// What a row (a head and a query) of the tile is.
struct Row {
  int64_t head, query;
  GPIPE_KERNEL static Row of(const AttentionTile& tile, int64_t row) { return {row / tile.rows, tile.first + row % tile.rows}; }
};

GPIPE_KERNEL bool sees(const AttentionTile& tile, int64_t query, int64_t key) {
  return (!tile.causal || key <= query) && (tile.tokens == nullptr || tile.tokens[key] != tile.padding);
}

// 0 or 1 / (1 - p): the CPU's draws, whose rows are padded to 64 keys.
GPIPE_KERNEL float factor(const AttentionTile& tile, const Draws& draws, const Row& row, int64_t key) {
  if (!tile.drops) return 1.0F;
  const int64_t pitch = (tile.keys + 63) / 64 * 64;
  const uint64_t at = static_cast<uint64_t>((row.head * tile.queries + row.query) * pitch + key);
  const float unit = Draws::to_unit(draws.word(0, at));
  return unit >= tile.p ? tile.keep : 0.0F;
}

}  // namespace

void attention_probabilities(const Queue& queue, const AttentionTile& tile, float* all_scores, float* logsumexp) {
  const Draws draws = Draws::of(tile.key);
  rows(queue, "attention probabilities", tile.heads * tile.rows, tile.seen, [=] GPIPE_KERNEL(auto& team, int64_t index) {
    const Row row = Row::of(tile, index);
    float* scores = all_scores + index * tile.seen;
    const float unseen = -INFINITY;
    const float most = team.reduce(
        tile.seen, unseen, [&](int64_t k) { return sees(tile, row.query, k) ? scores[k] : unseen; },
        [](float a, float b) { return b > a ? b : a; });
    team.each(tile.seen, [&](int64_t k) {
      const bool counts = sees(tile, row.query, k) && scores[k] != unseen;
      scores[k] = counts ? exp_f32(scores[k] - most) : 0.0F;  // NaN stays NaN
    });
    const double sum = team.template sum<double>(tile.seen, [&](int64_t k) { return static_cast<double>(scores[k]); });
    const bool none = sum == 0;
    team.once([&] { logsumexp[row.head * tile.queries + row.query] = none ? 0.0F : most + static_cast<float>(std::log(sum)); });
    const float share = none ? 0.0F : static_cast<float>(1 / sum);
    team.each(tile.seen, [&](int64_t k) { scores[k] = scores[k] * share * factor(tile, draws, row, k); });
  });
}

void attention_gradients(const Queue& queue, const AttentionTile& tile, float* all_scores, float* all_dscores,
                         const float* context, const float* dcontext, const float* logsumexp) {
  const Draws draws = Draws::of(tile.key);
  rows(queue, "attention gradient", tile.heads * tile.rows, std::max(tile.seen, tile.head_dim),
       [=] GPIPE_KERNEL(auto& team, int64_t index) {
         const Row row = Row::of(tile, index);
         float *scores = all_scores + index * tile.seen, *dscores = all_dscores + index * tile.seen;
         const int64_t at = (row.query * tile.heads + row.head) * tile.head_dim;
         const float* y = context + at;
         const float* dy = dcontext + at;
         // The sum over keys of probability times its gradient.
         const float product = static_cast<float>(team.template sum<double>(
             tile.head_dim, [&](int64_t i) { return static_cast<double>(y[i]) * static_cast<double>(dy[i]); }));
         const float total = logsumexp[row.head * tile.queries + row.query];
         team.each(tile.seen, [&](int64_t k) {
           const float p = sees(tile, row.query, k) ? exp_f32(scores[k] - total) : 0.0F;
           const float kept = factor(tile, draws, row, k);
           dscores[k] = p * (dscores[k] * kept - product) * tile.scale;
           scores[k] = p * kept;
         });
       });
}

void copy_rows(const Queue& queue, const float* from, int64_t rows, int64_t columns, float* to, int64_t stride) {
  each(queue, "copy of rows", rows * columns, [=] GPIPE_KERNEL(int64_t i) { to[i / columns * stride + i % columns] = from[i]; });
}

}  // namespace gpipe::device::cuda
