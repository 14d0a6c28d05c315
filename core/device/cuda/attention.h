// The kernels of attention between its matrix products, on a tile: some queries of one sample, all heads, and the keys that
// any of these queries may see.
#pragma once

#include "core/device/cuda/queue.h"
#include "core/device/ops.h"

namespace gpipe::device::cuda {

struct AttentionTile {
  int64_t heads, head_dim, queries, keys;  // of the sample
  int64_t first, rows, seen;               // the tile's queries, and how many keys they may see at most
  bool causal;
  const int32_t* tokens;  // [keys] of the sample, or null
  int64_t padding;
  float scale;
  bool drops;
  DropoutKey key;  // of this sample: first_sample is its index
  float p, keep;   // of the dropout: its probability, 1 / (1 - it)
};

/// scores [heads, rows, seen]: scaled products to probabilities as they meet the values; logsumexp [heads, queries].
void attention_probabilities(const Queue&, const AttentionTile&, float* scores, float* logsumexp);
/// scores: as above; dscores: the gradient of the probabilities to that of query . key. Rows of context and dcontext [queries,
/// heads x head_dim] are of the sample.
void attention_gradients(const Queue&, const AttentionTile&, float* scores, float* dscores, const float* context,
                         const float* dcontext, const float* logsumexp);
/// to[r, c] = from[r, c] for c < columns; rows of `to` are `stride` apart.
void copy_rows(const Queue&, const float* from, int64_t rows, int64_t columns, float* to, int64_t stride);

}  // namespace gpipe::device::cuda
