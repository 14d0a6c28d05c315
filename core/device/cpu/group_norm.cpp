// Normalisation of a sample's own features over [rows, positions, channels], in groups of channels.
//
// A group is read three times from the cache: mean, squared deviations, result. Sums run in sixteen lanes in the order of
// the elements, so that neither the number of threads nor what else is in the batch changes a bit. Groups of fewer channels than
// lanes share them, see group_tiles.h.
#include "core/device/cpu/group_tiles.h"
#include "core/device/cpu/ops.h"
#include "core/device/cpu/skeletons.h"

#include <cmath>

namespace gpipe::device::cpu {
namespace {

constexpr int64_t gradient_rows = 64;  // of [rows x positions] whose parameter gradients are summed at a time

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
    if (narrow()) return forward_narrow(x, scale, shift, y, reinterpret_cast<float*>(saved));
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
    if (narrow()) return backward_narrow(x, dy, scale, reinterpret_cast<const float*>(saved), dx);
    each_group(x, [&](int64_t group, int64_t first) {
      const float* statistics = reinterpret_cast<const float*>(saved) + 2 * group;
      const float mean = statistics[0];
      const float inverse = statistics[1];
      Lanes sums = {};
      Lanes products = {};
      const auto scaled = [&](int64_t at, int64_t channel, auto count) __attribute__((always_inline)) {
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
      const int64_t end = std::min(lines, (chunk + 1) * gradient_rows);
      for (int64_t line = chunk * gradient_rows; line < end;) {
        const int64_t row = line / spec_.positions, next = narrow() ? std::min(end, (row + 1) * spec_.positions) : line + 1;
        const float* statistics = reinterpret_cast<const float*>(saved) + 2 * row * spec_.groups;
        if (narrow())
          add_lines(x.f32() + line * channels, dy.f32() + line * channels, next - line, statistics, products);
        else
          add_line(x.f32() + line * channels, dy.f32() + line * channels, statistics, products);
        line = next;
      }
    });
    merge(parts, chunks, 0, dscale, accumulate);
    if (dshift) merge(parts, chunks, channels, dshift, accumulate);
  }

 private:
  bool narrow() const { return width_ < lanes && spec_.positions > 1; }

  template <class Body>
  void each_tile(const TensorView& x, const Body& body) const {
    const int64_t tiles = GroupTile::tiles(spec_);
    each_row(team_.threads, rows_of(x) * tiles, spec_.positions * spec_.channels / tiles, [&](int64_t i) {
      const GroupTile tile(spec_, i / tiles, i % tiles);
      body(tile, 2 * (i / tiles * spec_.groups + tile.first_group()));
    });
  }

  void forward_narrow(const TensorView& x, const TensorView& scale, const TensorView& shift, const TensorView& y,
                      float* saved) const {
    each_tile(x, [&](const GroupTile& tile, int64_t at_saved) {
      float* statistics = saved + at_saved;
      const GroupTile::Sums sums = tile.sum([&](int64_t at, int64_t, auto count) { return load_block(x.f32() + at, count); });
      for (int64_t group = 0; group < tile.groups(); ++group)
        statistics[2 * group] = spec_.center ? static_cast<float>(tile.of_group(sums, group) / count_) : 0.0F;
      const auto means = tile.each_group([&](int64_t group) { return statistics[2 * group]; });
      const GroupTile::Sums squares = tile.sum([&](int64_t at, int64_t j, auto count) {
        const Lanes d = only(load_block(x.f32() + at, count) - load(means.data() + j), count);
        return d * d;
      });
      for (int64_t group = 0; group < tile.groups(); ++group)
        statistics[2 * group + 1] = static_cast<float>(1 / std::sqrt(tile.of_group(squares, group) / count_ + spec_.epsilon));
      const auto inverses = tile.each_group([&](int64_t group) { return statistics[2 * group + 1]; });
      const auto factors = tile.parameter(scale, 1), offsets = tile.parameter(shift, 0);
      tile.each([&](int64_t at, int64_t j, auto count) {
        const Lanes normal = (load_block(x.f32() + at, count) - load(means.data() + j)) * load(inverses.data() + j);
        store_block(y.f32() + at, normal * load(factors.data() + j) + load(offsets.data() + j), count);
      });
    });
  }

  void backward_narrow(const TensorView& x, const TensorView& dy, const TensorView& scale, const float* saved,
                       const TensorView& dx) const {
    each_tile(x, [&](const GroupTile& tile, int64_t at_saved) {
      const float* statistics = saved + at_saved;
      const auto means = tile.each_group([&](int64_t group) { return statistics[2 * group]; });
      const auto inverses = tile.each_group([&](int64_t group) { return statistics[2 * group + 1]; });
      const auto factors = tile.parameter(scale, 1);
      const auto scaled = [&](int64_t at, int64_t j, auto count) {
        return load_block(dy.f32() + at, count) * load(factors.data() + j);
      };
      const auto normal = [&](int64_t at, int64_t j, auto count) {
        return (load_block(x.f32() + at, count) - load(means.data() + j)) * load(inverses.data() + j);
      };
      const GroupTile::Sums sums = spec_.center ? tile.sum(scaled) : GroupTile::Sums{};
      const GroupTile::Sums products =
          tile.sum([&](int64_t at, int64_t j, auto count) { return scaled(at, j, count) * normal(at, j, count); });
      const auto mean = [&](const GroupTile::Sums& of) {
        return tile.each_group([&](int64_t group) { return static_cast<float>(tile.of_group(of, group) / count_); });
      };
      const auto mean_gradients = mean(sums), mean_products = mean(products);
      tile.each([&](int64_t at, int64_t j, auto count) {
        const Lanes rest = scaled(at, j, count) - load(mean_gradients.data() + j);
        store_block(dx.f32() + at, (rest - normal(at, j, count) * load(mean_products.data() + j)) * load(inverses.data() + j),
                    count);
      });
    });
  }

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
  /// The same for some positions of one row, where groups are too narrow for a loop of their own.
  void add_lines(const float* x, const float* dy, int64_t lines, const float* statistics, float* products) const {
    float* sums = products + spec_.channels;
    constexpr int64_t tile = 64;
    for (int64_t first = 0; first < spec_.channels; first += tile) {
      const int64_t channels = std::min(tile, spec_.channels - first);
      std::array<float, tile> means, inverses;
      for (int64_t c = 0; c < channels; ++c) {
        means[static_cast<size_t>(c)] = statistics[2 * ((first + c) / width_)];
        inverses[static_cast<size_t>(c)] = statistics[2 * ((first + c) / width_) + 1];
      }
      for (int64_t line = 0; line < lines; ++line) {
        const float *from = x + line * spec_.channels + first, *gradient = dy + line * spec_.channels + first;
#pragma GCC ivdep
        for (int64_t c = 0; c < channels; ++c) {
          products[first + c] += gradient[c] * ((from[c] - means[static_cast<size_t>(c)]) * inverses[static_cast<size_t>(c)]);
          sums[first + c] += gradient[c];
        }
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
