// Attention by tiles of queries: cuBLAS multiplies, head by head in one call, what lies side by side in the rows; our kernels
// do what is between the products. A tile takes at most tile_bytes of scores (or 64 queries), so memory does not grow with
// queries x keys x samples.
#include "core/device/cuda/attention.h"

#include "core/base/error.h"
#include "core/device/cuda/context.h"
#include "core/device/cuda/ops.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace gpipe::device::cuda {
namespace {

constexpr int64_t tile_bytes = int64_t{16} << 20, least_rows = 64;

int64_t rows_of(const AttentionSpec& spec) {
  const int64_t fit = tile_bytes / (4 * spec.heads * spec.keys) / least_rows * least_rows;
  return std::min(std::max(fit, least_rows), spec.queries);
}

/// A matrix a head, as cuBLAS sees it: column by column, `pitch` from one to the next.
struct Matrices {
  float* data;
  int64_t pitch, stride;  // stride: from head to head
};

class CudaAttention final : public AttentionOp {
 public:
  CudaAttention(const AttentionSpec& spec, Context& context)
      : spec_(spec),
        rows_(rows_of(spec)),
        scale_(static_cast<float>(1 / std::sqrt(static_cast<double>(spec.head_dim)))),
        context_(context) {
    const int64_t most = std::max(spec.heads * rows_ * spec.keys, spec.heads * spec.head_dim * std::max(spec.queries, spec.keys));
    if (most > std::numeric_limits<int>::max())
      throw base::ConfigError("attention over {} queries and {} keys with {} heads is beyond what cuBLAS counts in 32 bits",
                              spec.queries, spec.keys, spec.heads);
    context.blas();
  }

  // Scores, their gradients, and the gradients of a sample's keys and values until all tiles were there.
  size_t workspace_bytes() const override { return 2 * scores_bytes() + 2 * keys_bytes(); }
  std::string implementation() const override { return "cublas:default"; }

  void forward(const AttentionInputs& in, const TensorView& context, const TensorView& logsumexp, std::byte* workspace) override {
    float* scores = reinterpret_cast<float*>(workspace);
    for (int64_t sample = 0; sample < context.shape[0]; ++sample) {
      const Sample s = sample_of(in, sample);
      float* y = context.f32() + sample * spec_.queries * width();
      for (int64_t first = 0; first < spec_.queries; first += rows_) {
        const AttentionTile tile = tile_of(in, sample, first);
        const Matrices score{scores, tile.seen, tile.rows * tile.seen};
        multiply(CUBLAS_OP_T, CUBLAS_OP_N, tile.seen, tile.rows, spec_.head_dim, scale_, s.key, from_row(s.query, first), 0,
                 score);
        attention_probabilities(context_.queue(), tile, scores, logsumexp.f32() + sample * spec_.heads * spec_.queries);
        multiply(CUBLAS_OP_N, CUBLAS_OP_N, spec_.head_dim, tile.rows, tile.seen, 1, s.value, score, 0,
                 {y + first * width(), width(), spec_.head_dim});
      }
    }
  }

  void backward(const AttentionInputs& in, const TensorView& context, const TensorView& logsumexp, const TensorView& dcontext,
                std::byte* workspace) override {
    float* scores = reinterpret_cast<float*>(workspace);
    float* dscores = reinterpret_cast<float*>(workspace + scores_bytes());
    std::byte* sums = workspace + 2 * scores_bytes();
    const Matrices dkey{reinterpret_cast<float*>(sums), width(), spec_.head_dim};
    const Matrices dvalue{reinterpret_cast<float*>(sums + keys_bytes()), width(), spec_.head_dim};
    for (int64_t sample = 0; sample < context.shape[0]; ++sample) {
      const Sample s = sample_of(in, sample);
      const int64_t at = sample * spec_.queries * width();
      context_.queue().use();
      check(cudaMemsetAsync(sums, 0, 2 * keys_bytes(), context_.compute()), "cudaMemsetAsync", context_.device());
      for (int64_t first = 0; first < spec_.queries; first += rows_) {
        const AttentionTile tile = tile_of(in, sample, first);
        const Matrices score{scores, tile.seen, tile.rows * tile.seen}, dscore{dscores, tile.seen, tile.rows * tile.seen};
        const Matrices query = from_row(s.query, first);
        const Matrices dy{dcontext.f32() + at + first * width(), width(), spec_.head_dim};
        multiply(CUBLAS_OP_T, CUBLAS_OP_N, tile.seen, tile.rows, spec_.head_dim, scale_, s.key, query, 0, score);
        multiply(CUBLAS_OP_T, CUBLAS_OP_N, tile.seen, tile.rows, spec_.head_dim, 1, s.value, dy, 0, dscore);
        attention_gradients(context_.queue(), tile, scores, dscores, context.f32() + at, dcontext.f32() + at,
                            logsumexp.f32() + sample * spec_.heads * spec_.queries);
        multiply(CUBLAS_OP_N, CUBLAS_OP_T, spec_.head_dim, tile.seen, tile.rows, 1, dy, score, 1, dvalue);
        multiply(CUBLAS_OP_N, CUBLAS_OP_T, spec_.head_dim, tile.seen, tile.rows, 1, query, dscore, 1, dkey);
        multiply(CUBLAS_OP_N, CUBLAS_OP_N, spec_.head_dim, tile.rows, tile.seen, 1, s.key, dscore, 0, query);
      }
      copy_rows(context_.queue(), dkey.data, spec_.keys, width(), s.key.data, s.key.pitch);
      copy_rows(context_.queue(), dvalue.data, spec_.keys, width(), s.value.data, s.value.pitch);
    }
  }

 private:
  struct Sample {
    Matrices query, key, value;
  };

  int64_t width() const { return spec_.heads * spec_.head_dim; }
  size_t scores_bytes() const { return aligned(4 * static_cast<size_t>(spec_.heads * rows_ * spec_.keys)); }
  size_t keys_bytes() const { return aligned(4 * static_cast<size_t>(spec_.keys * width())); }

  Sample sample_of(const AttentionInputs& in, int64_t sample) const {
    const auto rows = [&](const HeadRows& all, int64_t positions) {
      return Matrices{all.data + sample * positions * all.stride, all.stride, spec_.head_dim};
    };
    return {rows(in.query, spec_.queries), rows(in.key, spec_.keys), rows(in.value, spec_.keys)};
  }
  static Matrices from_row(const Matrices& all, int64_t row) { return {all.data + row * all.pitch, all.pitch, all.stride}; }

  AttentionTile tile_of(const AttentionInputs& in, int64_t sample, int64_t first) const {
    AttentionTile tile{};
    tile.heads = spec_.heads;
    tile.head_dim = spec_.head_dim;
    tile.queries = spec_.queries;
    tile.keys = spec_.keys;
    tile.first = first;
    tile.rows = std::min(rows_, spec_.queries - first);
    tile.seen = spec_.causal ? std::min(spec_.keys, first + tile.rows) : spec_.keys;
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

  /// c [m, n] = alpha op(a) op(b) + beta c, for every head.
  void multiply(cublasOperation_t op_a, cublasOperation_t op_b, int64_t m, int64_t n, int64_t k, float alpha, const Matrices& a,
                const Matrices& b, float beta, const Matrices& c) const {
    context_.queue().use();
    const auto narrow = [](int64_t extent) { return static_cast<int>(extent); };
    check(cublasGemmStridedBatchedEx(context_.blas(), op_a, op_b, narrow(m), narrow(n), narrow(k), &alpha, a.data, CUDA_R_32F,
                                     narrow(a.pitch), a.stride, b.data, CUDA_R_32F, narrow(b.pitch), b.stride, &beta, c.data,
                                     CUDA_R_32F, narrow(c.pitch), c.stride, narrow(spec_.heads), context_.compute_type(),
                                     CUBLAS_GEMM_DEFAULT),
          "cublasGemmStridedBatchedEx", context_.device());
  }

  AttentionSpec spec_;
  int64_t rows_;  // queries of a tile
  float scale_;
  Context& context_;
};

}  // namespace

std::unique_ptr<AttentionOp> make_attention(const AttentionSpec& spec, Context& context) {
  return std::make_unique<CudaAttention>(spec, context);
}

}  // namespace gpipe::device::cuda
