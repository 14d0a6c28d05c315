// The kernels of attention around its matrix products, on a tile: some queries of some samples, all heads, and the keys that any
// of these queries may see. Pointers to a tensor [N, ...] are to its part of the tile's first sample.
#pragma once

#include "core/device/cuda/queue.h"
#include "core/device/ops.h"

#include <array>

namespace gpipe::device::cuda {

struct AttentionTile {
  int64_t samples, heads, head_dim, queries, keys;
  int64_t first, rows;  // the tile's queries
  int64_t seen, pitch;  // how many keys they may see at most; floats from one row of scores to the next
  bool causal;
  const int32_t* tokens;  // [samples, keys], or null
  int64_t padding;
  float scale;
  bool drops;
  DropoutKey key;  // first_sample: of the tile
  float p, keep;   // of the dropout: its probability, 1 / (1 - it)
};

/// A matrix of every head of every sample: `data` is the first, `sample` and `head` are the floats from one to the next.
struct HeadMatrices {
  float* data;
  int64_t sample, head;
};
constexpr size_t most_head_matrices = 8;

/// pointers [most_head_matrices, samples, heads]: where each matrix is; of the first `count` kinds.
void point_to_heads(const Queue&, const AttentionTile&, const std::array<HeadMatrices, most_head_matrices>&, size_t count,
                    float** pointers);
/// scores [samples, heads, rows, pitch]: scaled products to probabilities as they meet the values; logsumexp [samples, heads,
/// queries].
void attention_probabilities(const Queue&, const AttentionTile&, float* scores, float* logsumexp);
/// scores: as above; dscores: the gradient of the probabilities to that of query . key. context and dcontext [samples, queries,
/// heads x head_dim].
void attention_gradients(const Queue&, const AttentionTile&, float* scores, float* dscores, const float* context,
                         const float* dcontext, const float* logsumexp);
/// The gradients [rows, columns] over the keys and values themselves.
void replace_keys(const Queue&, const float* dkey, const float* dvalue, int64_t rows, int64_t columns, const HeadRows& key,
                  const HeadRows& value);

}  // namespace gpipe::device::cuda
