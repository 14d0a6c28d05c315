// Batch normalisation over [rows, channels], rows = samples times positions.
//
// The rows are cut into chunks that fit the first-level cache and depend on the number of channels alone. A chunk gives its
// own mean and squared deviations (two passes over what is still in cache), the chunks are merged in double in ascending
// order: the input is read from memory once, nothing cancels, and the number of threads changes no bit.
#include "core/device/cpu/lanes.h"
#include "core/device/cpu/ops.h"
#include "core/device/cpu/skeletons.h"

#include <cmath>

namespace gpipe::device::cpu {
namespace {

int64_t chunk_rows(int64_t channels) { return std::clamp<int64_t>(4096 / channels, 16, 256); }

// Sum over rows of term(row), four rows side by side: the additions of one would wait for each other.
template <class Term>
Lanes sum_rows(int64_t rows, const Term& term) {
  Lanes a = {}, b = {}, c = {}, d = {};
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    a += term(r);
    b += term(r + 1);
    c += term(r + 2);
    d += term(r + 3);
  }
  for (; r < rows; ++r) a += term(r);
  return (a + b) + (c + d);
}

class CpuBatchNorm final : public BatchNormOp {
 public:
  CpuBatchNorm(const BatchNormSpec& spec, const Batches& batches, const Team& team)
      : spec_(spec), channels_(spec.sample.back()), positions_(spec.sample.elements() / channels_), team_(team) {
    int64_t most = 1;
    for (int64_t batch : batches) most = std::max(most, chunks_of(batch * positions_));
    most_chunks_ = most;
  }

  // Two numbers a chunk and channel, then four coefficients a channel.
  size_t workspace_bytes() const override {
    return aligned(sizeof(float) * static_cast<size_t>((2 * most_chunks_ + 4) * channels_));
  }

  void forward_train(const TensorView& x, const TensorView& scale, const TensorView& shift, const TensorView& y,
                     const TensorView& mean, const TensorView& variance, std::byte* workspace) override {
    const int64_t rows = rows_of(x), chunks = chunks_of(rows);
    float* part = reinterpret_cast<float*>(workspace);
    const float* in = x.f32();
    each_chunk(rows, [=, this](int64_t chunk, int64_t begin, int64_t count) {
      statistics(in + begin * channels_, count, part + 2 * chunk * channels_);
    });
    merge(part, rows, chunks, mean.f32(), variance.f32());
    normalise(x, scale, shift, mean, variance, y, part + 2 * chunks * channels_);
  }

  void forward_eval(const TensorView& x, const TensorView& scale, const TensorView& shift, const TensorView& mean,
                    const TensorView& variance, const TensorView& y, std::byte* workspace) override {
    normalise(x, scale, shift, mean, variance, y, reinterpret_cast<float*>(workspace));
  }

  void backward(const TensorView& x, const TensorView& dy, const TensorView& scale, const TensorView& mean,
                const TensorView& variance, const TensorView& dx, const TensorView& dscale, const TensorView& dshift,
                bool accumulate, std::byte* workspace) override {
    const int64_t rows = rows_of(x), chunks = chunks_of(rows);
    float* part = reinterpret_cast<float*>(workspace);
    float* factors = part + 2 * chunks * channels_;
    const float* in = x.f32();
    const float* gradient = dy.f32();
    const float* center = mean.f32();
    each_chunk(rows, [=, this](int64_t chunk, int64_t begin, int64_t count) {
      products(in + begin * channels_, gradient + begin * channels_, center, count, part + 2 * chunk * channels_);
    });
    gradients(part, rows, chunks, scale, variance, dscale, dshift, accumulate, factors);
    if (!dx) return;
    float* out = dx.f32();
    each_chunk(rows, [=, this](int64_t, int64_t begin, int64_t count) {
      input_gradient(in + begin * channels_, gradient + begin * channels_, center, factors, count, out + begin * channels_);
    });
  }

  size_t state_bytes() const override { return sizeof(double) * static_cast<size_t>(1 + 2 * channels_); }

  // state: rows so far, then mean and sum of squared deviations of each channel.
  void gather(const TensorView& mean, const TensorView& variance, int64_t rows, bool first, std::byte* state) override {
    double* total = reinterpret_cast<double*>(state);
    double* center = total + 1;
    double* squares = center + channels_;
    const double before = first ? 0 : *total, added = static_cast<double>(rows), now = before + added;
    for (int64_t c = 0; c < channels_; ++c) {
      const double m = mean.f32()[c], s = variance.f32()[c] * added;
      const double delta = first ? 0 : m - center[c];
      center[c] = first ? m : center[c] + delta * (added / now);
      squares[c] = first ? s : squares[c] + s + delta * delta * (before * added / now);
    }
    *total = now;
  }

  void update_running(const std::byte* state, double momentum, const TensorView& running_mean,
                      const TensorView& running_variance) override {
    const double* total = reinterpret_cast<const double*>(state);
    const double* center = total + 1;
    const double* squares = center + channels_;
    const double degrees = std::max(*total - 1, 1.0);
    const auto move = [momentum](float& running, double value) {
      running = static_cast<float>((1 - momentum) * running + momentum * value);
    };
    for (int64_t c = 0; c < channels_; ++c) {
      move(running_mean.f32()[c], center[c]);
      move(running_variance.f32()[c], squares[c] / degrees);
    }
  }

 private:
  int64_t rows_of(const TensorView& x) const { return x.shape[0] * positions_; }
  int64_t chunks_of(int64_t rows) const { return (rows + chunk_rows(channels_) - 1) / chunk_rows(channels_); }

  // body(chunk, first row, rows)
  template <class Body>
  void each_chunk(int64_t rows, const Body& body) const {
    const int64_t size = chunk_rows(channels_);
    each_row(team_.threads, chunks_of(rows), size * channels_,
             [&](int64_t chunk) { body(chunk, chunk * size, std::min(size, rows - chunk * size)); });
  }

  // part: mean[C], squared deviations[C] of these rows.
  void statistics(const float* x, int64_t rows, float* part) const {
    each_block(channels_, [&](int64_t c, auto count) {
      const Lanes mean =
          sum_rows(rows, [&](int64_t r) { return load_block(x + r * channels_ + c, count); }) * (1.0F / static_cast<float>(rows));
      const Lanes squares = sum_rows(rows, [&](int64_t r) {
        const Lanes d = load_block(x + r * channels_ + c, count) - mean;
        return d * d;
      });
      store_block(part + c, mean, count);
      store_block(part + channels_ + c, squares, count);
    });
  }

  void merge(const float* part, int64_t rows, int64_t chunks, float* mean, float* variance) const {
    const int64_t size = chunk_rows(channels_);
    const double all = static_cast<double>(rows);
    const auto weight = [=](int64_t chunk) { return static_cast<double>(std::min(size, rows - chunk * size)); };
    constexpr int64_t block = 64;
    for (int64_t begin = 0; begin < channels_; begin += block) {
      const int64_t count = std::min(block, channels_ - begin);
      std::array<double, block> center{}, squares{};
      for (int64_t k = 0; k < chunks; ++k)
        for (int64_t j = 0; j < count; ++j) center[static_cast<size_t>(j)] += weight(k) * part[2 * k * channels_ + begin + j];
      for (double& x : center) x /= all;
      for (int64_t k = 0; k < chunks; ++k)
        for (int64_t j = 0; j < count; ++j) {
          const float* here = part + 2 * k * channels_ + begin + j;
          const double d = here[0] - center[static_cast<size_t>(j)];
          squares[static_cast<size_t>(j)] += here[channels_] + weight(k) * d * d;
        }
      for (int64_t j = 0; j < count; ++j) {
        mean[begin + j] = static_cast<float>(center[static_cast<size_t>(j)]);
        variance[begin + j] = static_cast<float>(squares[static_cast<size_t>(j)] / all);
      }
    }
  }

  float inverse_deviation(float variance) const {
    return static_cast<float>(1.0 / std::sqrt(static_cast<double>(variance) + spec_.epsilon));
  }

  void normalise(const TensorView& x, const TensorView& scale, const TensorView& shift, const TensorView& mean,
                 const TensorView& variance, const TensorView& y, float* factors) const {
    float* factor = factors;
    float* offset = factors + channels_;
    for (int64_t c = 0; c < channels_; ++c) {
      factor[c] = inverse_deviation(variance.f32()[c]) * (scale ? scale.f32()[c] : 1.0F);
      offset[c] = shift ? shift.f32()[c] : 0.0F;
    }
    const float* in = x.f32();
    const float* center = mean.f32();
    float* out = y.f32();
    each_chunk(rows_of(x), [=, this](int64_t, int64_t begin, int64_t count) {
      each_block(channels_, [&](int64_t c, auto width) {
        const Lanes m = load_block(center + c, width), f = load_block(factor + c, width), o = load_block(offset + c, width);
        for (int64_t i = begin * channels_ + c; i < (begin + count) * channels_; i += channels_)
          store_block(out + i, (load_block(in + i, width) - m) * f + o, width);
      });
    });
  }

  // part: sum of dy[C], sum of dy (x - mean)[C] of these rows.
  void products(const float* x, const float* dy, const float* mean, int64_t rows, float* part) const {
    each_block(channels_, [&](int64_t c, auto count) {
      const Lanes m = load_block(mean + c, count);
      store_block(part + c, sum_rows(rows, [&](int64_t r) { return load_block(dy + r * channels_ + c, count); }), count);
      const Lanes product = sum_rows(rows, [&](int64_t r) {
        const int64_t i = r * channels_ + c;
        return load_block(dy + i, count) * (load_block(x + i, count) - m);
      });
      store_block(part + channels_ + c, product, count);
    });
  }

  // Sums of the chunks; factors: [scale / deviation, mean of dy, (x - mean)'s factor] for input_gradient.
  void gradients(const float* part, int64_t rows, int64_t chunks, const TensorView& scale, const TensorView& variance,
                 const TensorView& dscale, const TensorView& dshift, bool accumulate, float* factors) const {
    constexpr int64_t block = 64;
    const double all = static_cast<double>(rows);
    const auto put = [accumulate](float& to, double value) {
      to = accumulate ? to + static_cast<float>(value) : static_cast<float>(value);
    };
    for (int64_t begin = 0; begin < channels_; begin += block) {
      const int64_t count = std::min(block, channels_ - begin);
      std::array<double, block> sum{}, product{};
      for (int64_t k = 0; k < chunks; ++k)
        for (int64_t j = 0; j < count; ++j) {
          const float* here = part + 2 * k * channels_ + begin + j;
          sum[static_cast<size_t>(j)] += here[0];
          product[static_cast<size_t>(j)] += here[channels_];
        }
      for (int64_t j = 0; j < count; ++j) {
        const int64_t c = begin + j;
        const double inverse = inverse_deviation(variance.f32()[c]);
        const double s = sum[static_cast<size_t>(j)], p = product[static_cast<size_t>(j)] * inverse;
        if (dscale) put(dscale.f32()[c], p);
        if (dshift) put(dshift.f32()[c], s);
        factors[c] = static_cast<float>(inverse * (scale ? scale.f32()[c] : 1.0F));
        factors[channels_ + c] = static_cast<float>(s / all);
        factors[2 * channels_ + c] = static_cast<float>(p * inverse / all);
      }
    }
  }

  void input_gradient(const float* x, const float* dy, const float* mean, const float* factors, int64_t rows, float* dx) const {
    each_block(channels_, [&](int64_t c, auto count) {
      const Lanes m = load_block(mean + c, count), f = load_block(factors + c, count);
      const Lanes mean_dy = load_block(factors + channels_ + c, count), slope = load_block(factors + 2 * channels_ + c, count);
      for (int64_t i = c; i < rows * channels_; i += channels_) {
        const Lanes d = (load_block(dy + i, count) - mean_dy) - (load_block(x + i, count) - m) * slope;
        store_block(dx + i, d * f, count);
      }
    });
  }

  BatchNormSpec spec_;
  int64_t channels_, positions_, most_chunks_ = 1;
  const Team& team_;
};

}  // namespace

std::unique_ptr<BatchNormOp> make_batch_norm(const BatchNormSpec& spec, const Batches& batches, const Team& team) {
  return std::make_unique<CpuBatchNorm>(spec, batches, team);
}

}  // namespace gpipe::device::cpu
