// Groups narrower than a block of lanes, several positions each (instance norm, mostly): the lanes are channels beside each
// other, whatever groups they belong to, and a group's sums are made of its channels' afterwards.
#pragma once

#include "core/device/cpu/lanes.h"
#include "core/device/ops.h"

#include <algorithm>
#include <array>

namespace gpipe::device::cpu {

/// Some whole groups of one sample, at all its positions. Fewer than sixteen channels, and a divisor of that, lie in several
/// copies side by side: a line is then sixteen consecutive floats, and the last may be short.
class GroupTile {
 public:
  static constexpr int64_t most = 64;  // channels (copies counted)
  using Row = std::array<float, most>;
  using Sums = std::array<double, most>;

  static int64_t tiles(const GroupNormSpec& spec) {
    return folds(spec) ? 1 : (spec.groups + groups_in(spec) - 1) / groups_in(spec);
  }

  GroupTile(const GroupNormSpec& spec, int64_t sample, int64_t tile)
      : width_(spec.channels / spec.groups), first_group_(tile * groups_in(spec)) {
    const int64_t elements = spec.positions * spec.channels;
    begin_ = sample * elements;
    if (folds(spec)) {
      period_ = spec.channels;
      channels_ = stride_ = lanes;
      lines_ = elements / lanes;
      rest_ = elements % lanes;
    } else {
      const int64_t first = first_group_ * width_;
      period_ = channels_ = std::min(groups_in(spec) * width_, spec.channels - first);
      stride_ = spec.channels;
      lines_ = spec.positions;
      begin_ += first;
    }
  }

  int64_t first_group() const { return first_group_; }
  int64_t groups() const { return period_ / width_; }
  int64_t first_channel() const { return first_group_ * width_; }

  /// row[j] = of_group(group of j within the tile)
  template <class F>
  Row each_group(const F& of_group) const {
    Row row{};
    for (int64_t j = 0; j < channels_; ++j) row[static_cast<size_t>(j)] = of_group(j % period_ / width_);
    return row;
  }
  /// Of a parameter [C], or `otherwise` where it is null.
  Row parameter(const TensorView& values, float otherwise) const {
    Row row{};
    for (int64_t j = 0; j < channels_; ++j)
      row[static_cast<size_t>(j)] = values ? values.f32()[first_channel() + j % period_] : otherwise;
    return row;
  }
  /// A group's part of sums over lines.
  double of_group(const Sums& sums, int64_t group) const {
    double sum = 0;
    for (int64_t copy = 0; copy < channels_; copy += period_)
      for (int64_t j = group * width_; j < (group + 1) * width_; ++j) sum += sums[static_cast<size_t>(copy + j)];
    return sum;
  }

  /// f(offset of the first element, j, count) for all blocks of all lines, block by block.
  template <class F>
  void each(const F& f) const {
    each_block(channels_, [&](int64_t j, auto count) {
      for (int64_t line = 0; line < lines_; ++line) f(begin_ + line * stride_ + j, j, count);
    });
    if (rest_ > 0) f(begin_ + lines_ * stride_, int64_t{0}, rest_);
  }
  /// Sums over the lines of f, whose lanes beyond `count` are 0: 64 lines in f32, then these in double.
  template <class F>
  Sums sum(const F& f) const {
    Sums sums{};
    each_block(channels_, [&](int64_t j, auto count) {
      for (int64_t begin = 0; begin < lines_; begin += 64) {
        Lanes part = {};
        for (int64_t line = begin; line < std::min(lines_, begin + 64); ++line) part += f(begin_ + line * stride_ + j, j, count);
        add(part, sums.data() + j, count);
      }
    });
    if (rest_ > 0) add(f(begin_ + lines_ * stride_, int64_t{0}, rest_), sums.data(), rest_);
    return sums;
  }

 private:
  static bool folds(const GroupNormSpec& spec) { return spec.channels < lanes && lanes % spec.channels == 0; }
  static int64_t groups_in(const GroupNormSpec& spec) {
    return folds(spec) ? spec.groups : std::min(spec.groups, most * spec.groups / spec.channels);
  }
  static void add(const Lanes& part, double* sums, int64_t count) {
    for (int64_t i = 0; i < count; ++i) sums[i] += static_cast<double>(part[i]);
  }

  int64_t width_, first_group_;
  int64_t period_ = 0;    // after so many the channels are the same again
  int64_t channels_ = 0;  // of a line
  int64_t stride_ = 0, lines_ = 0, rest_ = 0;
  int64_t begin_ = 0;  // offset of the first element
};

}  // namespace gpipe::device::cpu
