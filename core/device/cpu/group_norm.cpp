// Normalisation of a sample's own features over [rows, positions, channels], in groups of channels.
//
// A group is read three times from the cache: mean, squared deviations, result. Sums run in sixteen lanes in the order of
// the elements, so that neither the number of threads nor what else is in the batch changes a bit.
#include "core/device/cpu/lanes.h"
#include "core/device/cpu/ops.h"
#include "core/device/cpu/skeletons.h"

#include <cmath>

namespace gpipe::device::cpu {
namespace {

constexpr int64_t gradient_rows = 64;  // of [rows x positions] whose parameter gradients are summed at a time

/// Zero in the lanes that a block of `count` channels does not have.
template <class Count>
Lanes only(Lanes x, Count count) {
  if constexpr (std::is_same_v<Count, int64_t>)
    for (int64_t i = count; i < lanes; ++i) x[i] = 0;
  return x;
}

double total(const Lanes& x) {
  double sum = 0;
  for (int64_t i = 0; i < lanes; ++i) sum += static_cast<double>(x[i]);
  return sum;
}

class CpuGroupNorm final : public GroupNormOp {
 public:
  CpuGroupNorm(const GroupNormSpec& spec, const Batches& batches, const Team& team)
      : spec_(spec), width_(spec.channels / spec.groups), count_(static_cast<double>(spec.positions * width_)), team_(team) {
    most_chunks_ = chunks_of(batches.front());
  }

  size_t workspace_bytes() const override {
    return aligned(sizeof(float) * static_cast<size_t>(2 * most_chunks_ * spec_.channels));
  }
  size_t saved_bytes(int64_t rows) const override { return 2 * sizeof(float) * static_cast<size_t>(rows * spec_.groups); }

  void forward(const TensorView& x, const TensorView& scale, const TensorView& shift, const TensorView& y,
               std::byte* saved) override {
    each_group(x, [&](int64_t group, int64_t first) {
      const float* in = x.f32() + first;
      const float mean = spec_.center ? static_cast<float>(sum(in, [](Lanes v, auto) { return v; }) / count_) : 0.0F;
      const double squares = sum(in, [mean](Lanes v, auto count) {
        const Lanes d = only(v - mean, count);
        return d * d;
      });
      const auto inverse = static_cast<float>(1 / std::sqrt(squares / count_ + spec_.epsilon));
      float* statistics = reinterpret_cast<float*>(saved) + 2 * group;
      statistics[0] = mean;
      statistics[1] = inverse;
      each_lane_block(first, [&](int64_t at, int64_t channel, auto count) {
        Lanes v = (load_block(x.f32() + at, count) - mean) * inverse;
        if (scale) v *= load_block(scale.f32() + channel, count);
        if (shift) v += load_block(shift.f32() + channel, count);
        store_block(y.f32() + at, v, count);
      });
    });
  }

  void backward_input(const TensorView& x, const TensorView& dy, const TensorView& scale, const std::byte* saved,
                      const TensorView& dx) override {
    each_group(x, [&](int64_t group, int64_t first) {
      const float* statistics = reinterpret_cast<const float*>(saved) + 2 * group;
      const float mean = statistics[0];
      const float inverse = statistics[1];
      Lanes sums = {};
      Lanes products = {};
      const auto scaled = [&](int64_t at, int64_t channel, auto count) {
        Lanes g = load_block(dy.f32() + at, count);
        if (scale) g *= load_block(scale.f32() + channel, count);
        return g;
      };
      each_lane_block(first, [&](int64_t at, int64_t channel, auto count) {
        const Lanes g = scaled(at, channel, count);
        sums += g;
        products += g * ((load_block(x.f32() + at, count) - mean) * inverse);  // lanes that are not there have g = 0
      });
      const float mean_gradient = spec_.center ? static_cast<float>(total(sums) / count_) : 0.0F;
      const auto mean_product = static_cast<float>(total(products) / count_);
      each_lane_block(first, [&](int64_t at, int64_t channel, auto count) {
        const Lanes normal = (load_block(x.f32() + at, count) - mean) * inverse;
        store_block(dx.f32() + at, (scaled(at, channel, count) - mean_gradient - normal * mean_product) * inverse, count);
      });
    });
  }

  void backward_weight(const TensorView& x, const TensorView& dy, const std::byte* saved, const TensorView& dscale,
                       const TensorView& dshift, bool accumulate, std::byte* workspace) override {
    const int64_t channels = spec_.channels;
    const int64_t lines = rows_of(x) * spec_.positions;
    const int64_t chunks = chunks_of(rows_of(x));
    float* parts = reinterpret_cast<float*>(workspace);
    each_row(team_.threads, chunks, gradient_rows * channels, [&](int64_t chunk) {
      float* products = parts + 2 * chunk * channels;
      std::fill(products, products + 2 * channels, 0.0F);
      for (int64_t line = chunk * gradient_rows; line < std::min(lines, (chunk + 1) * gradient_rows); ++line)
        add_line(x.f32() + line * channels, dy.f32() + line * channels,
                 reinterpret_cast<const float*>(saved) + 2 * (line / spec_.positions) * spec_.groups, products);
    });
    merge(parts, chunks, 0, dscale, accumulate);
    if (dshift) merge(parts, chunks, channels, dshift, accumulate);
  }

 private:
  int64_t rows_of(const TensorView& x) const { return x.elements() / (spec_.positions * spec_.channels); }
  int64_t chunks_of(int64_t rows) const { return (rows * spec_.positions + gradient_rows - 1) / gradient_rows; }

  /// body(group among all, offset of its first element)
  template <class Body>
  void each_group(const TensorView& x, const Body& body) const {
    const int64_t sample = spec_.positions * spec_.channels;
    each_row(team_.threads, rows_of(x) * spec_.groups, spec_.positions * width_,
             [&](int64_t group) { body(group, group / spec_.groups * sample + group % spec_.groups * width_); });
  }
  /// f(offset, channel, count) for the blocks of the group whose first element is at `first`.
  template <class F>
  void each_lane_block(int64_t first, const F& f) const {
    const int64_t channel = first % spec_.channels;
    for (int64_t position = 0; position < spec_.positions; ++position)
      each_block(width_, [&](int64_t c, auto count) { f(first + position * spec_.channels + c, channel + c, count); });
  }
  template <class F>
  double sum(const float* group, const F& f) const {
    Lanes sums = {};
    for (int64_t position = 0; position < spec_.positions; ++position)
      each_block(width_,
                 [&](int64_t c, auto count) { sums += f(load_block(group + position * spec_.channels + c, count), count); });
    return total(sums);
  }
  /// Adds a position's dy x normal to products[0, C), its dy to products[C, 2C). `statistics`: of the row's groups.
  void add_line(const float* x, const float* dy, const float* statistics, float* products) const {
    float* sums = products + spec_.channels;
    for (int64_t group = 0; group < spec_.groups; ++group) {
      const float mean = statistics[2 * group];
      const float inverse = statistics[2 * group + 1];
#pragma GCC ivdep
      for (int64_t c = group * width_; c < (group + 1) * width_; ++c) {
        products[c] += dy[c] * ((x[c] - mean) * inverse);
        sums[c] += dy[c];
      }
    }
  }
  void merge(const float* parts, int64_t chunks, int64_t offset, const TensorView& out, bool accumulate) const {
    for (int64_t c = 0; c < spec_.channels; ++c) {
      double sum = 0;
      for (int64_t chunk = 0; chunk < chunks; ++chunk) sum += static_cast<double>(parts[2 * chunk * spec_.channels + offset + c]);
      out.f32()[c] = accumulate ? out.f32()[c] + static_cast<float>(sum) : static_cast<float>(sum);
    }
  }

  GroupNormSpec spec_;
  int64_t width_;  // channels of a group
  double count_;   // elements of a group
  const Team& team_;
  int64_t most_chunks_ = 1;
};

}  // namespace

std::unique_ptr<GroupNormOp> make_group_norm(const GroupNormSpec& spec, const Batches& batches, const Team& team) {
  return std::make_unique<CpuGroupNorm>(spec, batches, team);
}

}  // namespace gpipe::device::cpu
