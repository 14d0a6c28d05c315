// Attention by tiles of queries of a group of samples: cuBLAS multiplies, every head of every sample in one call, what lies side
// by side in the rows; our kernels do what is between the products. A group has as many samples as have scores, and keys, that
// fit into tile_bytes; of a sample with more scores than that a tile takes as many queries as fit (at least 64). So calls do not
// grow with the samples of a micro-batch, nor memory with queries x keys x samples.
#include "core/device/cuda/attention.h"

#include "core/base/error.h"
#include "core/device/cuda/context.h"
#include "core/device/cuda/ops.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>

namespace gpipe::device::cuda {
namespace {

constexpr int64_t tile_bytes = int64_t{16} << 20, least_rows = 64;

/// Floats from one row of scores to the next: each matrix starts on 16 bytes, as tensor cores want it.
constexpr int64_t pitch_of(int64_t keys) { return (keys + 3) / 4 * 4; }

int64_t rows_of(const AttentionSpec& spec) {
  const int64_t row_bytes = 4 * spec.heads * pitch_of(spec.keys);
  if (spec.queries * row_bytes <= tile_bytes) return spec.queries;
  return std::min(std::max(tile_bytes / row_bytes / least_rows * least_rows, least_rows), spec.queries);
}

int64_t samples_of(const AttentionSpec& spec, const Batches& batches) {
  const int64_t row = 4 * spec.heads * std::max(spec.queries * pitch_of(spec.keys), spec.keys * spec.head_dim);
  return std::clamp<int64_t>(tile_bytes / row, 1, batches.front());
}

/// A matrix of each head of each sample of a tile, as cuBLAS sees it: column by column, `pitch` from one to the next.
struct Matrices : HeadMatrices {
  int64_t pitch;
  float** pointers = nullptr;  // to them, in the device's memory
};

class CudaAttention final : public AttentionOp {
 public:
  CudaAttention(const AttentionSpec& spec, const Batches& batches, Context& context)
      : spec_(spec),
        rows_(rows_of(spec)),
        samples_(samples_of(spec, batches)),
        scale_(static_cast<float>(1 / std::sqrt(static_cast<double>(spec.head_dim)))),
        context_(context) {
    const int64_t most = std::max(spec.heads * rows_ * spec.keys, spec.heads * spec.head_dim * std::max(spec.queries, spec.keys));
    if (most > std::numeric_limits<int>::max())
      throw base::ConfigError("attention over {} queries and {} keys with {} heads is beyond what cuBLAS counts in 32 bits",
                              spec.queries, spec.keys, spec.heads);
    context.blas();
  }

  // Scores, their gradients, the gradients of keys and values until all tiles were there, and pointers to the matrices of each.
  size_t workspace_bytes() const override { return 2 * scores_bytes() + 2 * keys_bytes() + pointers_bytes(); }
  std::string implementation() const override { return "cublas:default"; }

  void forward(const AttentionInputs& in, const TensorView& context, const TensorView& logsumexp, std::byte* workspace) override {
    for (int64_t sample = 0; sample < context.shape[0]; sample += samples_)
      for (int64_t first = 0; first < spec_.queries; first += rows_) {
        const AttentionTile tile = tile_of(in, sample, context.shape[0], first);
        Matrices query = rows_from(in.query, spec_.queries, sample, first), key = rows_from(in.key, spec_.keys, sample);
        Matrices value = rows_from(in.value, spec_.keys, sample), score = scores(tile, workspace);
        Matrices y = rows_from({context.f32(), width()}, spec_.queries, sample, first);
        point(tile, {&query, &key, &value, &score, &y}, workspace);
        multiply(tile, CUBLAS_OP_T, CUBLAS_OP_N, tile.seen, tile.rows, spec_.head_dim, scale_, key, query, 0, score);
        attention_probabilities(context_.queue(), tile, score.data, logsumexp.f32() + sample * spec_.heads * spec_.queries);
        multiply(tile, CUBLAS_OP_N, CUBLAS_OP_N, spec_.head_dim, tile.rows, tile.seen, 1, value, score, 0, y);
      }
  }

  // The tile of the last queries is the first: it sees all keys, so it writes all their gradients, and the others add to them.
  void backward(const AttentionInputs& in, const TensorView& context, const TensorView& logsumexp, const TensorView& dcontext,
                std::byte* workspace) override {
    const int64_t last = (spec_.queries - 1) / rows_ * rows_;
    for (int64_t sample = 0; sample < context.shape[0]; sample += samples_) {
      const int64_t at = sample * spec_.queries * width(), logs_at = sample * spec_.heads * spec_.queries;
      Matrices key = rows_from(in.key, spec_.keys, sample), value = rows_from(in.value, spec_.keys, sample);
      Matrices dkey = key_sums(workspace, 0), dvalue = key_sums(workspace, 1);
      for (int64_t first = last; first >= 0; first -= rows_) {
        const AttentionTile tile = tile_of(in, sample, context.shape[0], first);
        const float kept = first == last ? 0 : 1;
        Matrices query = rows_from(in.query, spec_.queries, sample, first), score = scores(tile, workspace);
        Matrices dy = rows_from({dcontext.f32(), width()}, spec_.queries, sample, first);
        Matrices dscore = scores(tile, workspace + scores_bytes());
        point(tile, {&query, &key, &value, &score, &dscore, &dy, &dkey, &dvalue}, workspace);
        multiply(tile, CUBLAS_OP_T, CUBLAS_OP_N, tile.seen, tile.rows, spec_.head_dim, scale_, key, query, 0, score);
        multiply(tile, CUBLAS_OP_T, CUBLAS_OP_N, tile.seen, tile.rows, spec_.head_dim, 1, value, dy, 0, dscore);
        attention_gradients(context_.queue(), tile, score.data, dscore.data, context.f32() + at, dcontext.f32() + at,
                            logsumexp.f32() + logs_at);
        multiply(tile, CUBLAS_OP_N, CUBLAS_OP_T, spec_.head_dim, tile.seen, tile.rows, 1, dy, score, kept, dvalue);
        multiply(tile, CUBLAS_OP_N, CUBLAS_OP_T, spec_.head_dim, tile.seen, tile.rows, 1, query, dscore, kept, dkey);
        multiply(tile, CUBLAS_OP_N, CUBLAS_OP_N, spec_.head_dim, tile.rows, tile.seen, 1, key, dscore, 0, query);
      }
      const int64_t samples = std::min(samples_, context.shape[0] - sample);
      replace_keys(context_.queue(), dkey.data, dvalue.data, samples * spec_.keys, width(), {key.data, key.pitch},
                   {value.data, value.pitch});
    }
  }

 private:
  int64_t width() const { return spec_.heads * spec_.head_dim; }
  size_t scores_bytes() const { return aligned(4 * static_cast<size_t>(samples_ * spec_.heads * rows_ * pitch_of(spec_.keys))); }
  size_t keys_bytes() const { return aligned(4 * static_cast<size_t>(samples_ * spec_.keys * width())); }
  size_t pointers_bytes() const {
    return aligned(sizeof(float*) * most_head_matrices * static_cast<size_t>(samples_ * spec_.heads));
  }

  Matrices rows_from(const HeadRows& all, int64_t positions, int64_t sample, int64_t first = 0) const {
    return {{all.data + (sample * positions + first) * all.stride, positions * all.stride, spec_.head_dim}, all.stride};
  }
  Matrices scores(const AttentionTile& tile, std::byte* at) const {
    const int64_t head = tile.rows * tile.pitch;
    return {{reinterpret_cast<float*>(at), spec_.heads * head, head}, tile.pitch};
  }
  Matrices key_sums(std::byte* workspace, size_t which) const {
    std::byte* at = workspace + 2 * scores_bytes() + which * keys_bytes();
    return rows_from({reinterpret_cast<float*>(at), width()}, spec_.keys, 0);
  }

  AttentionTile tile_of(const AttentionInputs& in, int64_t sample, int64_t all_samples, int64_t first) const {
    AttentionTile tile{};
    tile.samples = std::min(samples_, all_samples - sample);
    tile.heads = spec_.heads;
    tile.head_dim = spec_.head_dim;
    tile.queries = spec_.queries;
    tile.keys = spec_.keys;
    tile.first = first;
    tile.rows = std::min(rows_, spec_.queries - first);
    tile.seen = spec_.causal && first + tile.rows < spec_.queries ? std::min(spec_.keys, first + tile.rows) : spec_.keys;
    tile.pitch = pitch_of(tile.seen);
    tile.causal = spec_.causal;
    tile.tokens = in.tokens ? in.tokens.i32() + sample * spec_.keys : nullptr;
    tile.padding = spec_.padding;
    tile.scale = scale_;
    tile.drops = in.key_of_mask != nullptr;
    if (tile.drops) tile.key = *in.key_of_mask;
    tile.key.first_sample += sample;
    tile.p = static_cast<float>(spec_.dropout);
    tile.keep = static_cast<float>(1 / (1 - spec_.dropout));
    return tile;
  }

  /// Has the pointers to these written.
  void point(const AttentionTile& tile, std::initializer_list<Matrices*> all, std::byte* workspace) const {
    float** next = reinterpret_cast<float**>(workspace + 2 * scores_bytes() + 2 * keys_bytes());
    std::array<HeadMatrices, most_head_matrices> kinds{};
    size_t count = 0;
    float** const pointers = next;
    for (Matrices* matrices : all) {
      kinds[count++] = *matrices;
      matrices->pointers = next;
      next += tile.samples * spec_.heads;
    }
    point_to_heads(context_.queue(), tile, kinds, count, pointers);
  }

  // cuBLAS's batches by pointers read 16 bytes at once for tensor cores; the rows of a head start there if this divides.
  cublasComputeType_t compute_type() const { return spec_.head_dim % 4 == 0 ? context_.compute_type() : CUBLAS_COMPUTE_32F; }

  /// c [m, n] = alpha op(a) op(b) + beta c, for every head of every sample.
  void multiply(const AttentionTile& tile, cublasOperation_t op_a, cublasOperation_t op_b, int64_t m, int64_t n, int64_t k,
                float alpha, const Matrices& a, const Matrices& b, float beta, const Matrices& c) const {
    context_.queue().use();
    const auto narrow = [](int64_t extent) { return static_cast<int>(extent); };
    const auto array = [](const Matrices& matrices) { return reinterpret_cast<void* const*>(matrices.pointers); };
    check(cublasGemmBatchedEx(context_.blas(), op_a, op_b, narrow(m), narrow(n), narrow(k), &alpha, array(a), CUDA_R_32F,
                              narrow(a.pitch), array(b), CUDA_R_32F, narrow(b.pitch), &beta, array(c), CUDA_R_32F,
                              narrow(c.pitch), narrow(tile.samples * spec_.heads), compute_type(), CUBLAS_GEMM_DEFAULT),
          "cublasGemmBatchedEx", context_.device());
  }

  AttentionSpec spec_;
  int64_t rows_, samples_;  // queries and samples of a tile
  float scale_;
  Context& context_;
};

}  // namespace

std::unique_ptr<AttentionOp> make_attention(const AttentionSpec& spec, const Batches& batches, Context& context) {
  return std::make_unique<CudaAttention>(spec, batches, context);
}

}  // namespace gpipe::device::cuda
