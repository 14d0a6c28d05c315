// Pooling, channels-last, sixteen channels at a time. Each output (forward) and each input (backward) is written once from
// a window that is walked in ascending order, so the rows can be shared among threads without changing a bit.
#include "core/device/cpu/lanes.h"
#include "core/device/cpu/ops.h"
#include "core/device/cpu/skeletons.h"

#include <limits>

namespace gpipe::device::cpu {
namespace {

struct Range {
  int64_t begin, end;
};

// One axis of the windows.
struct Axis {
  int64_t in, out, kernel, stride, pad;

  int64_t start(int64_t o) const { return o * stride - pad; }
  // Offsets inside the window of output o that lie on the input.
  Range inside(int64_t o) const { return {std::max<int64_t>(0, -start(o)), std::min(kernel, in - start(o))}; }
  // Outputs whose window covers input i.
  Range covering(int64_t i) const {
    const int64_t first = i + pad - kernel + 1;
    return {first <= 0 ? 0 : (first + stride - 1) / stride, std::min(out, (i + pad) / stride + 1)};
  }
};

class CpuPool final : public PoolOp {
 public:
  CpuPool(const PoolSpec& spec, const Team& team)
      : spec_(spec),
        rows_{spec.in_height, spec.out_height, spec.kernel[0], spec.stride[0], spec.pad_top},
        columns_{spec.in_width, spec.out_width, spec.kernel[1], spec.stride[1], spec.pad_left},
        index_bytes_(spec.kernel[0] * spec.kernel[1] <= 256 ? 1 : 4),
        whole_share_(1.0F / static_cast<float>(spec.kernel[0] * spec.kernel[1])),
        team_(team) {
    for (int64_t iw = 0; iw < columns_.in; ++iw) covering_.push_back(columns_.covering(iw));
  }

  size_t saved_bytes(int64_t batch) const override {
    if (spec_.kind != PoolSpec::Kind::max) return 0;
    return static_cast<size_t>(batch * rows_.out * columns_.out * spec_.channels * index_bytes_);
  }

  void forward(const TensorView& x, const TensorView& y, std::byte* saved, std::byte*) override {
    const int64_t channels = spec_.channels, in_row = columns_.in * channels;
    const float* in = x.f32();
    float* out = y.f32();
    each_row(team_.threads, x.shape[0] * rows_.out, columns_.out * channels, [&](int64_t row) {
      const int64_t sample = row / rows_.out, oh = row % rows_.out;
      for (int64_t ow = 0; ow < columns_.out; ++ow) {
        const int64_t corner = (sample * rows_.in + rows_.start(oh)) * in_row + columns_.start(ow) * channels;
        const int64_t at = (row * columns_.out + ow) * channels;
        if (spec_.kind == PoolSpec::Kind::max)
          largest(in, corner, oh, ow, out + at, saved, at);
        else
          average(in, corner, oh, ow, out + at);
      }
    });
  }

  void backward(const TensorView& dy, const std::byte* saved, const TensorView& dx, std::byte*) override {
    const int64_t channels = spec_.channels;
    const float* from = dy.f32();
    float* to = dx.f32();
    each_row(team_.threads, dx.shape[0] * rows_.in, columns_.in * channels, [&](int64_t row) {
      const int64_t sample = row / rows_.in, ih = row % rows_.in;
      const Range vertical = rows_.covering(ih);
      for (int64_t iw = 0; iw < columns_.in; ++iw) {
        const Range horizontal = covering_[static_cast<size_t>(iw)];
        each_block(channels, [&](int64_t c, auto count) {
          Lanes sum = {};
          for (int64_t oh = vertical.begin; oh < vertical.end; ++oh)
            for (int64_t ow = horizontal.begin; ow < horizontal.end; ++ow) {
              const int64_t at = ((sample * rows_.out + oh) * columns_.out + ow) * channels + c;
              const int64_t tap = (ih - rows_.start(oh)) * columns_.kernel + (iw - columns_.start(ow));
              sum += gradient(from, saved, at, tap, oh, ow, count);
            }
          store_block(to + (row * columns_.in + iw) * channels + c, sum, count);
        });
      }
    });
  }

 private:
  // The first of the largest, as PyTorch; NaN counts as larger than everything. `corner` is the index of the window's first
  // element in the input; it may lie before it, in the padding.
  void largest(const float* in, int64_t corner, int64_t oh, int64_t ow, float* out, std::byte* saved, int64_t at) const {
    const Range vertical = rows_.inside(oh), horizontal = columns_.inside(ow);
    each_block(spec_.channels, [&](int64_t c, auto count) {
      Lanes best = Lanes{} - std::numeric_limits<float>::infinity();
      IntLanes where = IntLanes{} + static_cast<int32_t>(vertical.begin * columns_.kernel + horizontal.begin);
      for (int64_t kh = vertical.begin; kh < vertical.end; ++kh)
        for (int64_t kw = horizontal.begin; kw < horizontal.end; ++kw) {
          const Lanes x = load_block(in + corner + (kh * columns_.in + kw) * spec_.channels + c, count);
          const IntLanes better = (x > best) | (x != x);
          best = better ? x : best;
          where = better ? IntLanes{} + static_cast<int32_t>(kh * columns_.kernel + kw) : where;
        }
      store_block(out + c, best, count);
      if (index_bytes_ == 1) {
        store_bytes(saved + at + c, where, count);
      } else {
        std::memcpy(saved + 4 * (at + c), &where, static_cast<size_t>(4 * int64_t{count}));
      }
    });
  }

  void average(const float* in, int64_t corner, int64_t oh, int64_t ow, float* out) const {
    const Range vertical = rows_.inside(oh), horizontal = columns_.inside(ow);
    const float part = share(oh, ow);
    each_block(spec_.channels, [&](int64_t c, auto count) {
      Lanes sum = {};
      for (int64_t kh = vertical.begin; kh < vertical.end; ++kh)
        for (int64_t kw = horizontal.begin; kw < horizontal.end; ++kw)
          sum += load_block(in + corner + (kh * columns_.in + kw) * spec_.channels + c, count);
      store_block(out + c, sum * part, count);
    });
  }

  // What output (oh, ow) gives to the input under tap `tap` of its window.
  template <class Count>
  Lanes gradient(const float* dy, const std::byte* saved, int64_t at, int64_t tap, int64_t oh, int64_t ow, Count count) const {
    const Lanes d = load_block(dy + at, count);
    if (spec_.kind != PoolSpec::Kind::max) return d * share(oh, ow);
    return where_saved(saved, at, count) == static_cast<int32_t>(tap) ? d : Lanes{};
  }

  template <class Count>
  IntLanes where_saved(const std::byte* saved, int64_t at, Count count) const {
    IntLanes where = {};
    if (index_bytes_ == 1) {
      where = load_bytes(saved + at, count);
    } else {
      std::memcpy(&where, saved + 4 * at, static_cast<size_t>(4 * int64_t{count}));
    }
    return where;
  }

  float share(int64_t oh, int64_t ow) const {
    if (spec_.kind == PoolSpec::Kind::average) return whole_share_;
    const Range vertical = rows_.inside(oh), horizontal = columns_.inside(ow);
    return 1.0F / static_cast<float>((vertical.end - vertical.begin) * (horizontal.end - horizontal.begin));
  }

  PoolSpec spec_;
  Axis rows_, columns_;
  int64_t index_bytes_;  // of a position in the window
  float whole_share_;
  std::vector<Range> covering_;  // of each column: a division for every pixel would cost more than the pixel
  const Team& team_;
};

}  // namespace

std::unique_ptr<PoolOp> make_pool(const PoolSpec& spec, const Batches&, const Team& team) {
  return std::make_unique<CpuPool>(spec, team);
}

}  // namespace gpipe::device::cpu
