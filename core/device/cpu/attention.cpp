// Attention on the CPU by tiles that stay in the cache. A head of a sample (forward: 64 queries of one) is the work of one
// thread, in one order, so the size of the team changes no bit.
#include "core/device/cpu/attention_tile.h"
#include "core/device/cpu/block_product.h"
#include "core/device/cpu/ops.h"

#include <cmath>

namespace gpipe::device::cpu {
namespace {

/// Hands out parts of a thread's workspace; with a null one it only counts.
class Carver {
 public:
  explicit Carver(float* at) : at_(at) {}
  float* take(int64_t floats) {
    float* part = at_ == nullptr ? nullptr : at_ + taken_;
    taken_ += padded(floats);
    return part;
  }
  int64_t taken() const { return taken_; }

 private:
  float* at_;
  int64_t taken_ = 0;
};

/// What both directions want of a thread.
struct Tile {
  Tile(Carver& carver, int64_t pitch)
      : query(carver.take(tile_edge * pitch)),
        key_columns(carver.take(pitch * tile_edge)),
        value(carver.take(tile_edge * pitch)),
        scores(carver.take(tile_edge * tile_edge)),
        bias(carver.take(tile_edge)) {}
  float *query, *key_columns, *value;  // value: by rows in forward, by columns in backward
  float *scores, *bias;
};

struct ForwardTile : Tile {
  ForwardTile(Carver& carver, int64_t pitch)
      : Tile(carver, pitch), context(carver.take(tile_edge * pitch)), most(carver.take(tile_edge)), sum(carver.take(tile_edge)) {}
  float *context, *most, *sum;
};

struct BackwardTile : Tile {
  BackwardTile(Carver& carver, int64_t pitch, int64_t queries)
      : Tile(carver, pitch),
        key(carver.take(tile_edge * pitch)),
        dcontext(carver.take(tile_edge * pitch)),
        dscores(carver.take(tile_edge * tile_edge)),
        dkey(carver.take(tile_edge * pitch)),
        dvalue(carver.take(tile_edge * pitch)),
        dquery(carver.take(queries * pitch)),
        products(carver.take(queries)) {}
  float *key, *dcontext, *dscores, *dkey, *dvalue;
  float *dquery, *products;  // of all queries of the head
};

/// One head of one sample.
struct Head {
  int64_t sample, head;
  float *query, *key, *value;
  const int32_t* tokens;  // null: every key is seen
};

class CpuAttention final : public AttentionOp {
 public:
  CpuAttention(const AttentionSpec& spec, const Team& team)
      : spec_(spec),
        pitch_(padded(spec.head_dim)),
        scale_(static_cast<float>(1 / std::sqrt(static_cast<double>(spec.head_dim)))),
        keep_(static_cast<float>(1 / (1 - spec.dropout))),
        team_(team) {
    Carver forward(nullptr);
    Carver backward(nullptr);
    const ForwardTile forward_tile(forward, pitch_);
    const BackwardTile backward_tile(backward, pitch_, spec.queries);
    thread_floats_ = std::max(forward.taken(), backward.taken());
  }

  size_t workspace_bytes() const override { return aligned(sizeof(float) * static_cast<size_t>(thread_floats_ * team_.threads)); }

  void forward(const AttentionInputs& in, const TensorView& context, const TensorView& logsumexp, std::byte* workspace) override {
    const int64_t tiles = (spec_.queries + tile_edge - 1) / tile_edge;
    const int64_t units = context.shape[0] * spec_.heads * tiles;
    each_part(team_.threads, units, units * tile_edge * spec_.keys, [&](int64_t first, int64_t last) {
      Carver carver(thread_memory(workspace));
      const ForwardTile tile(carver, pitch_);
      for (int64_t unit = first; unit < last; ++unit) {
        const Head head = head_of(in, unit / tiles);
        const int64_t query = unit % tiles * tile_edge;
        forward_queries(head, in, query, std::min(tile_edge, spec_.queries - query), tile);
        finish_queries(head, query, std::min(tile_edge, spec_.queries - query), tile, context, logsumexp);
      }
    });
  }

  void backward(const AttentionInputs& in, const TensorView& context, const TensorView& logsumexp, const TensorView& dcontext,
                std::byte* workspace) override {
    const int64_t units = context.shape[0] * spec_.heads;
    each_part(team_.threads, units, units * spec_.queries * spec_.keys, [&](int64_t first, int64_t last) {
      Carver carver(thread_memory(workspace));
      const BackwardTile tile(carver, pitch_, spec_.queries);
      for (int64_t unit = first; unit < last; ++unit) {
        const Head head = head_of(in, unit);
        const float* logsums = logsumexp.f32() + unit * spec_.queries;
        start_backward(head, context, dcontext, tile);
        for (int64_t key = 0; key < spec_.keys; key += tile_edge)
          backward_keys(head, in, key, std::min(tile_edge, spec_.keys - key), row_of(dcontext, head), logsums, tile);
        unpack_rows(tile.dquery, spec_.queries, spec_.head_dim, head.query, in.query.stride);
      }
    });
  }

 private:
  float* thread_memory(std::byte* workspace) const {
    return reinterpret_cast<float*>(workspace) + thread_floats_ * omp_get_thread_num();
  }
  int64_t width() const { return spec_.heads * spec_.head_dim; }
  float* row_of(const TensorView& context, const Head& head) const {
    return context.f32() + head.sample * spec_.queries * width() + head.head * spec_.head_dim;
  }

  Head head_of(const AttentionInputs& in, int64_t unit) const {
    const int64_t sample = unit / spec_.heads, head = unit % spec_.heads;
    const auto first = [&](const HeadRows& rows, int64_t positions) {
      return rows.data + sample * positions * rows.stride + head * spec_.head_dim;
    };
    return {sample,
            head,
            first(in.query, spec_.queries),
            first(in.key, spec_.keys),
            first(in.value, spec_.keys),
            in.tokens ? in.tokens.i32() + sample * spec_.keys : nullptr};
  }

  void find_bias(const Head& head, int64_t key, int64_t keys, float* bias) const {
    for (int64_t c = 0; c < tile_edge; ++c)
      bias[c] = c < keys && (head.tokens == nullptr || head.tokens[key + c] != spec_.padding) ? 0.0F : unseen;
  }

  /// factors[c] = 0 or 1 / (1 - p): of the probabilities of this query and the 64 keys from `key` on.
  void draw_factors(const DropoutKey& key_of_mask, const Head& head, int64_t query, int64_t key, float* factors) const {
    const uint64_t stream =
        static_cast<uint64_t>(key_of_mask.node) << 32 | static_cast<uint32_t>(key_of_mask.first_sample + head.sample);
    const base::Philox philox(key_of_mask.seed, base::Purpose::dropout, static_cast<uint64_t>(key_of_mask.step), stream);
    const int64_t row = (spec_.keys + tile_edge - 1) / tile_edge * tile_edge;
    std::array<uint32_t, draw_step> words;
    static_assert(draw_step == tile_edge);
    draw(philox, static_cast<uint64_t>((head.head * spec_.queries + query) * row + key) / 4, words);
    const auto p = static_cast<float>(spec_.dropout);
    for (int64_t c = 0; c < draw_step; c += lanes) {
      Words drawn;
      std::memcpy(&drawn, words.data() + c, sizeof drawn);
      const Lanes unit = __builtin_convertvector(drawn >> 8, Lanes) * 0x1.0p-24F;  // Philox::to_unit
      store(factors + c, unit >= p ? Lanes{} + keep_ : Lanes{});
    }
  }

  void forward_queries(const Head& head, const AttentionInputs& in, int64_t query, int64_t rows, const ForwardTile& tile) const {
    pack_rows(head.query + query * in.query.stride, in.query.stride, rows, spec_.head_dim, tile.query);
    std::fill_n(tile.context, rows * pitch_, 0.0F);
    std::fill_n(tile.most, rows, unseen);
    std::fill_n(tile.sum, rows, 0.0F);
    const int64_t end = spec_.causal ? std::min(spec_.keys, query + rows) : spec_.keys;
    for (int64_t key = 0; key < end; key += tile_edge) {
      const int64_t keys = std::min(tile_edge, spec_.keys - key), columns = padded(keys);
      find_bias(head, key, keys, tile.bias);
      pack_transposed(head.key + key * in.key.stride, in.key.stride, keys, spec_.head_dim, tile.key_columns);
      pack_rows(head.value + key * in.value.stride, in.value.stride, keys, spec_.head_dim, tile.value);
      block_product(rows, columns, spec_.head_dim, {tile.query, pitch_, 1}, tile.key_columns, tile_edge, tile.scores, tile_edge,
                    false);
      const Mask mask{scale_, tile.bias, spec_.causal, query - key};
      for (int64_t r = 0; r < rows; ++r) {
        float* row = tile.scores + r * tile_edge;
        mask.apply(r, row, columns);
        merge_row(row, columns, tile.most[r], tile.sum[r], tile.context + r * pitch_);
        if (in.key_of_mask != nullptr) drop(*in.key_of_mask, head, query + r, key, row, columns);
      }
      block_product(rows, pitch_, keys, {tile.scores, tile_edge, 1}, tile.value, pitch_, tile.context, pitch_, true);
    }
  }

  /// Scores to exponents under the largest score so far; what was summed under a smaller one shrinks.
  void merge_row(float* row, int64_t columns, float& most, float& sum, float* context) const {
    const float here = largest(row, columns), before = most;
    most = here > before ? here : before;
    const float shrink = before == unseen ? 0.0F : exp_f32(before - most);
    exponents(row, columns, most);
    sum = sum * shrink + sum_of(row, columns);
    if (most == before) return;
    for (int64_t c = 0; c < pitch_; c += lanes) store(context + c, load(context + c) * shrink);
  }

  void drop(const DropoutKey& key_of_mask, const Head& head, int64_t query, int64_t key, float* row, int64_t columns) const {
    std::array<float, tile_edge> factors;
    draw_factors(key_of_mask, head, query, key, factors.data());
    for (int64_t c = 0; c < columns; c += lanes) store(row + c, load(row + c) * load(factors.data() + c));
  }

  void finish_queries(const Head& head, int64_t query, int64_t rows, const ForwardTile& tile, const TensorView& context,
                      const TensorView& logsumexp) const {
    float* logs = logsumexp.f32() + (head.sample * spec_.heads + head.head) * spec_.queries + query;
    for (int64_t r = 0; r < rows; ++r) {
      const bool none = tile.most[r] == unseen && tile.sum[r] == 0;
      logs[r] = none ? 0.0F : tile.most[r] + std::log(tile.sum[r]);
      const float share = none ? 0.0F : 1 / tile.sum[r];
      float* row = tile.context + r * pitch_;
      for (int64_t c = 0; c < pitch_; c += lanes) store(row + c, load(row + c) * share);
    }
    unpack_rows(tile.context, rows, spec_.head_dim, row_of(context, head) + query * width(), width());
  }

  /// The sum over keys of probability times its gradient is context . dcontext.
  void start_backward(const Head& head, const TensorView& context, const TensorView& dcontext, const BackwardTile& tile) const {
    const float* y = row_of(context, head);
    const float* dy = row_of(dcontext, head);
    for (int64_t t = 0; t < spec_.queries; ++t) tile.products[t] = dot(y + t * width(), dy + t * width(), spec_.head_dim);
    std::fill_n(tile.dquery, spec_.queries * pitch_, 0.0F);
  }

  void backward_keys(const Head& head, const AttentionInputs& in, int64_t key, int64_t keys, const float* dcontext,
                     const float* logsums, const BackwardTile& tile) const {
    float* key_rows = head.key + key * in.key.stride;
    float* value_rows = head.value + key * in.value.stride;
    find_bias(head, key, keys, tile.bias);
    pack_rows(key_rows, in.key.stride, keys, spec_.head_dim, tile.key);
    pack_transposed(key_rows, in.key.stride, keys, spec_.head_dim, tile.key_columns);
    pack_transposed(value_rows, in.value.stride, keys, spec_.head_dim, tile.value);
    std::fill_n(tile.dkey, keys * pitch_, 0.0F);
    std::fill_n(tile.dvalue, keys * pitch_, 0.0F);
    for (int64_t query = spec_.causal ? key : 0; query < spec_.queries; query += tile_edge) {
      const int64_t rows = std::min(tile_edge, spec_.queries - query);
      pack_rows(head.query + query * in.query.stride, in.query.stride, rows, spec_.head_dim, tile.query);
      pack_rows(dcontext + query * width(), width(), rows, spec_.head_dim, tile.dcontext);
      find_dscores(head, in, query, rows, key, padded(keys), logsums, tile);
      block_product(keys, pitch_, rows, {tile.scores, 1, tile_edge}, tile.dcontext, pitch_, tile.dvalue, pitch_, true);
      block_product(keys, pitch_, rows, {tile.dscores, 1, tile_edge}, tile.query, pitch_, tile.dkey, pitch_, true);
      block_product(rows, pitch_, keys, {tile.dscores, tile_edge, 1}, tile.key, pitch_, tile.dquery + query * pitch_, pitch_,
                    true);
    }
    unpack_rows(tile.dkey, keys, spec_.head_dim, key_rows, in.key.stride);
    unpack_rows(tile.dvalue, keys, spec_.head_dim, value_rows, in.value.stride);
  }

  /// scores: the probabilities as they met the values; dscores: the gradient of query . key.
  void find_dscores(const Head& head, const AttentionInputs& in, int64_t query, int64_t rows, int64_t key, int64_t columns,
                    const float* logsums, const BackwardTile& tile) const {
    block_product(rows, columns, spec_.head_dim, {tile.query, pitch_, 1}, tile.key_columns, tile_edge, tile.scores, tile_edge,
                  false);
    block_product(rows, columns, spec_.head_dim, {tile.dcontext, pitch_, 1}, tile.value, tile_edge, tile.dscores, tile_edge,
                  false);
    const Mask mask{scale_, tile.bias, spec_.causal, query - key};
    std::array<float, tile_edge> factors;
    factors.fill(1.0F);
    for (int64_t r = 0; r < rows; ++r) {
      float* row = tile.scores + r * tile_edge;
      float* drow = tile.dscores + r * tile_edge;
      mask.apply(r, row, columns);
      exponents(row, columns, logsums[query + r]);
      if (in.key_of_mask != nullptr) draw_factors(*in.key_of_mask, head, query + r, key, factors.data());
      const float product = tile.products[query + r];
      for (int64_t c = 0; c < columns; c += lanes) {
        const Lanes p = load(row + c), factor = load(factors.data() + c);
        store(drow + c, p * (load(drow + c) * factor - product) * scale_);
        store(row + c, p * factor);
      }
    }
  }

  AttentionSpec spec_;
  int64_t pitch_;  // of a row of features in a tile
  float scale_, keep_;
  const Team& team_;
  int64_t thread_floats_ = 0;
};

}  // namespace

std::unique_ptr<AttentionOp> make_attention(const AttentionSpec& spec, const Team& team) {
  return std::make_unique<CpuAttention>(spec, team);
}

}  // namespace gpipe::device::cpu
