// Pooling, channels-last, sixteen channels at a time. Each output (forward) and each input (backward) is written once from
// a window that is walked in ascending order, so the rows can be shared among threads without changing a bit.
#include "core/device/cpu/lanes.h"
#include "core/device/cpu/ops.h"
#include "core/device/cpu/skeletons.h"

#include <limits>

namespace gpipe::device::cpu {
namespace {

typedef int32_t IntLanes __attribute__((vector_size(64)));
typedef uint8_t ByteLanes __attribute__((vector_size(16)));

// Calls body(channel, count): whole blocks of sixteen channels, then what is left.
template <class Body>
void each_block(int64_t channels, const Body& body) {
  int64_t c = 0;
  for (; c + lanes <= channels; c += lanes) body(c, lanes);
  if (c < channels) body(c, channels - c);
}
Lanes load_block(const float* from, int64_t count) { return count == lanes ? load(from) : load(from, count); }
void store_block(float* to, const Lanes& x, int64_t count) { count == lanes ? store(to, x) : store(to, x, count); }

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
        team_(team) {}

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
        const float* corner = in + (sample * rows_.in + rows_.start(oh)) * in_row + columns_.start(ow) * channels;
        const int64_t at = (row * columns_.out + ow) * channels;
        if (spec_.kind == PoolSpec::Kind::max)
          largest(corner, oh, ow, out + at, saved, at);
        else
          average(corner, oh, ow, out + at);
      }
    });
  }

  void backward(const TensorView& dy, const std::byte* saved, const TensorView& dx, std::byte*) override {
    const int64_t channels = spec_.channels;
    const float* from = dy.f32();
    float* to = dx.f32();
    each_row(team_.threads, dx.shape[0] * rows_.in, columns_.in * channels, [&](int64_t row) {
      const int64_t sample = row / rows_.in, ih = row % rows_.in;
      for (int64_t iw = 0; iw < columns_.in; ++iw)
        each_block(channels, [&](int64_t c, int64_t count) {
          const Lanes sum = gather(from, saved, sample, ih, iw, c, count);
          store_block(to + (row * columns_.in + iw) * channels + c, sum, count);
        });
    });
  }

 private:
  // The first of the largest, as PyTorch; NaN counts as larger than everything. `corner` may lie outside the input.
  void largest(const float* corner, int64_t oh, int64_t ow, float* out, std::byte* saved, int64_t at) const {
    const Range vertical = rows_.inside(oh), horizontal = columns_.inside(ow);
    each_block(spec_.channels, [&](int64_t c, int64_t count) {
      Lanes best = Lanes{} - std::numeric_limits<float>::infinity();
      IntLanes where = IntLanes{} + static_cast<int32_t>(vertical.begin * columns_.kernel + horizontal.begin);
      for (int64_t kh = vertical.begin; kh < vertical.end; ++kh)
        for (int64_t kw = horizontal.begin; kw < horizontal.end; ++kw) {
          const Lanes x = load_block(corner + (kh * columns_.in + kw) * spec_.channels + c, count);
          const IntLanes better = (x > best) | (x != x);
          best = better ? x : best;
          where = better ? IntLanes{} + static_cast<int32_t>(kh * columns_.kernel + kw) : where;
        }
      store_block(out + c, best, count);
      if (index_bytes_ == 1) {
        const ByteLanes small = __builtin_convertvector(where, ByteLanes);
        std::memcpy(saved + at + c, &small, static_cast<size_t>(count));
      } else {
        std::memcpy(saved + 4 * (at + c), &where, static_cast<size_t>(4 * count));
      }
    });
  }

  void average(const float* corner, int64_t oh, int64_t ow, float* out) const {
    const Range vertical = rows_.inside(oh), horizontal = columns_.inside(ow);
    const float share = 1.0F / area(oh, ow);
    each_block(spec_.channels, [&](int64_t c, int64_t count) {
      Lanes sum = {};
      for (int64_t kh = vertical.begin; kh < vertical.end; ++kh)
        for (int64_t kw = horizontal.begin; kw < horizontal.end; ++kw)
          sum += load_block(corner + (kh * columns_.in + kw) * spec_.channels + c, count);
      store_block(out + c, sum * share, count);
    });
  }

  Lanes gather(const float* dy, const std::byte* saved, int64_t sample, int64_t ih, int64_t iw, int64_t c, int64_t count) const {
    const Range vertical = rows_.covering(ih), horizontal = columns_.covering(iw);
    Lanes sum = {};
    for (int64_t oh = vertical.begin; oh < vertical.end; ++oh)
      for (int64_t ow = horizontal.begin; ow < horizontal.end; ++ow) {
        const int64_t at = ((sample * rows_.out + oh) * columns_.out + ow) * spec_.channels + c;
        const Lanes d = load_block(dy + at, count);
        if (spec_.kind == PoolSpec::Kind::max) {
          const int64_t offset = (ih - rows_.start(oh)) * columns_.kernel + (iw - columns_.start(ow));
          sum += where_saved(saved, at, count) == static_cast<int32_t>(offset) ? d : Lanes{};
        } else {
          sum += d * (1.0F / area(oh, ow));
        }
      }
    return sum;
  }

  IntLanes where_saved(const std::byte* saved, int64_t at, int64_t count) const {
    IntLanes where = {};
    if (index_bytes_ == 1) {
      ByteLanes small = {};
      std::memcpy(&small, saved + at, static_cast<size_t>(count));
      where = __builtin_convertvector(small, IntLanes);
    } else {
      std::memcpy(&where, saved + 4 * at, static_cast<size_t>(4 * count));
    }
    return where;
  }

  float area(int64_t oh, int64_t ow) const {
    if (spec_.kind == PoolSpec::Kind::average) return static_cast<float>(rows_.kernel * columns_.kernel);
    const Range vertical = rows_.inside(oh), horizontal = columns_.inside(ow);
    return static_cast<float>((vertical.end - vertical.begin) * (horizontal.end - horizontal.begin));
  }

  PoolSpec spec_;
  Axis rows_, columns_;
  int64_t index_bytes_;  // of a position in the window
  const Team& team_;
};

}  // namespace

std::unique_ptr<PoolOp> make_pool(const PoolSpec& spec, const Batches&, const Team& team) {
  return std::make_unique<CpuPool>(spec, team);
}

}  // namespace gpipe::device::cpu
