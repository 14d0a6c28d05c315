// Nearest and bilinear resampling, channels-last. Forward mixes up to two input rows for an output row; backward gathers: an
// input row is the weighted sum of the output rows that read it, in ascending order, then the same along the row. Each
// element is written by one thread from a fixed list, so that the number of threads changes no bit.
#include "core/device/functors/resample.h"

#include "core/device/cpu/ops.h"
#include "core/device/cpu/skeletons.h"

namespace gpipe::device::cpu {
namespace {

struct Share {
  int64_t out;
  float weight;
};

// One axis both ways: what an output position reads, and which output positions read an input position.
struct Axis {
  std::vector<Tap> taps;
  std::vector<Share> shares;
  std::vector<size_t> starts;  // of the shares of each input position, and the end

  template <class F>
  static Axis make(int64_t in, int64_t out, const F& tap) {
    Axis axis;
    std::vector<std::vector<Share>> readers(static_cast<size_t>(in));
    for (int64_t o = 0; o < out; ++o) {
      const Tap t = tap(o);
      axis.taps.push_back(t);
      if (t.low == t.high) {
        readers[static_cast<size_t>(t.low)].push_back({o, 1.0F});
        continue;
      }
      readers[static_cast<size_t>(t.low)].push_back({o, 1.0F - t.weight});
      if (t.weight > 0) readers[static_cast<size_t>(t.high)].push_back({o, t.weight});
    }
    for (const std::vector<Share>& own : readers) {
      axis.starts.push_back(axis.shares.size());
      axis.shares.insert(axis.shares.end(), own.begin(), own.end());
    }
    axis.starts.push_back(axis.shares.size());
    return axis;
  }

  std::span<const Share> of(int64_t in) const {
    const size_t i = static_cast<size_t>(in);
    return std::span(shares).subspan(starts[i], starts[i + 1] - starts[i]);
  }
};

Axis axis_of(ResampleSpec::Kind kind, int64_t in, int64_t out, double scale) {
  const float step = static_cast<float>(scale);
  if (kind == ResampleSpec::Kind::nearest) return Axis::make(in, out, NearestAxis{in, step});
  return Axis::make(in, out, LinearAxis{in, step, kind == ResampleSpec::Kind::bilinear_align_corners});
}

// to (+)= weight * from
void add_scaled(float* to, const float* from, float weight, int64_t count, bool overwrite) {
  if (overwrite) {
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) to[i] = weight * from[i];
  } else {
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) to[i] += weight * from[i];
  }
}

class CpuResample final : public ResampleOp {
 public:
  CpuResample(const ResampleSpec& spec, const Team& team)
      : spec_(spec),
        team_(team),
        rows_(axis_of(spec.kind, spec.in_height, spec.out_height, spec.scale[0])),
        columns_(axis_of(spec.kind, spec.in_width, spec.out_width, spec.scale[1])) {}

  // A row of output gradients a thread.
  size_t workspace_bytes() const override { return static_cast<size_t>(team_.threads) * row_bytes(); }

  void forward(const TensorView& x, const TensorView& y) override {
    const int64_t in_row = spec_.in_width * spec_.channels, out_row = spec_.out_width * spec_.channels;
    const float* in = x.f32();
    float* out = y.f32();
    each_row(team_.threads, x.shape[0] * spec_.out_height, out_row, [=, this](int64_t row) {
      const Tap& tap = rows_.taps[static_cast<size_t>(row % spec_.out_height)];
      const float* image = in + row / spec_.out_height * spec_.in_height * in_row;
      const float *low = image + tap.low * in_row, *high = image + tap.high * in_row;
      if (spec_.kind == ResampleSpec::Kind::nearest)
        nearest_row(low, out + row * out_row);
      else
        linear_row(low, high, tap.weight, out + row * out_row);
    });
  }

  void backward(const TensorView& dy, const TensorView& dx, std::byte* workspace) override {
    const int64_t in_row = spec_.in_width * spec_.channels, out_row = spec_.out_width * spec_.channels;
    const float* from = dy.f32();
    float* to = dx.f32();
    each_row(team_.threads, dx.shape[0] * spec_.in_height, 2 * in_row, [=, this](int64_t row) {
      float* sum = reinterpret_cast<float*>(workspace + static_cast<size_t>(omp_get_thread_num()) * row_bytes());
      const float* image = from + row / spec_.in_height * spec_.out_height * out_row;
      const std::span<const Share> readers = rows_.of(row % spec_.in_height);
      if (readers.empty()) {
        std::fill(to + row * in_row, to + (row + 1) * in_row, 0.0F);
      } else if (spec_.kind == ResampleSpec::Kind::nearest && spec_.channels >= wide) {
        gather_blocks(image, readers, to + row * in_row);
      } else {
        for (size_t k = 0; k < readers.size(); ++k)
          add_scaled(sum, image + readers[k].out * out_row, readers[k].weight, out_row, k == 0);
        gather_row(sum, to + row * in_row);
      }
    });
  }

 private:
  size_t row_bytes() const { return aligned(static_cast<size_t>(spec_.out_width * spec_.channels) * sizeof(float)); }

  void nearest_row(const float* in, float* out) const {
    const int64_t channels = spec_.channels;
    for (const Tap& tap : columns_.taps) {
      const float* from = in + tap.low * channels;
      for (int64_t c = 0; c < channels; ++c) out[c] = from[c];
      out += channels;
    }
  }

  void linear_row(const float* low, const float* high, float weight, float* out) const {
    const int64_t channels = spec_.channels;
    const float rest = 1.0F - weight;
    for (const Tap& tap : columns_.taps) {
      const float right = tap.weight, left = 1.0F - right;
      const int64_t a = tap.low * channels, b = tap.high * channels;
#pragma GCC ivdep
      for (int64_t c = 0; c < channels; ++c)
        out[c] = rest * (left * low[a + c] + right * low[b + c]) + weight * (left * high[a + c] + right * high[b + c]);
      out += channels;
    }
  }

  static constexpr int64_t wide = 16;  // channels from which it is faster to add positions one by one than whole rows

  // Nearest: the sum over a rectangle of output positions, without a row in between.
  void gather_blocks(const float* image, std::span<const Share> rows, float* to) const {
    const int64_t channels = spec_.channels;
    for (int64_t i = 0; i < spec_.in_width; ++i, to += channels) {
      const std::span<const Share> readers = columns_.of(i);
      if (readers.empty()) std::fill(to, to + channels, 0.0F);
      for (size_t r = 0; r < rows.size(); ++r)
        for (size_t k = 0; k < readers.size(); ++k)
          add_scaled(to, image + (rows[r].out * spec_.out_width + readers[k].out) * channels, 1.0F, channels, r + k == 0);
    }
  }

  void gather_row(const float* sum, float* to) const {
    const int64_t channels = spec_.channels;
    for (int64_t i = 0; i < spec_.in_width; ++i, to += channels) {
      const std::span<const Share> readers = columns_.of(i);
      if (readers.empty()) std::fill(to, to + channels, 0.0F);
      for (size_t k = 0; k < readers.size(); ++k)
        add_scaled(to, sum + readers[k].out * channels, readers[k].weight, channels, k == 0);
    }
  }

  ResampleSpec spec_;
  const Team& team_;
  Axis rows_, columns_;
};

}  // namespace

std::unique_ptr<ResampleOp> make_resample(const ResampleSpec& spec, const Team& team) {
  return std::make_unique<CpuResample>(spec, team);
}

}  // namespace gpipe::device::cpu
