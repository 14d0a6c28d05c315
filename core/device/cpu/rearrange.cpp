// Padding, cropping, slicing and transposing as one copy: runs along the last axis where input and output share it, square
// tiles where the input's last axis is another one of the output, so that both sides are walked by whole cache lines.
#include "core/device/cpu/ops.h"
#include "core/device/cpu/skeletons.h"

namespace gpipe::device::cpu {
namespace {

struct Axis {
  int64_t extent;       // of the output
  int64_t stride;       // of the output, in elements
  int64_t from_stride;  // of the input, for one step along this axis
  int64_t first, last;  // output indices [first, last) that lie on the input
};

class CpuRearrange final : public RearrangeOp {
 public:
  CpuRearrange(const RearrangeSpec& spec, const Team& team)
      : team_(team),
        in_sample_(spec.input.elements()),
        out_sample_(spec.output.elements()),
        fill_(static_cast<float>(spec.fill)) {
    std::array<int64_t, RearrangeSpec::max_axes> in_strides{};
    int64_t stride = 1;
    for (int j = spec.input.rank() - 1; j >= 0; --j) {
      in_strides[static_cast<size_t>(j)] = stride;
      stride *= spec.input[j];
    }
    stride = 1;
    for (int k = spec.output.rank() - 1; k >= 0; --k) {
      const size_t at = static_cast<size_t>(k);
      const int from = spec.axes[at];
      const int64_t offset = spec.offset[at], extent = spec.output[k];
      const int64_t first = std::clamp<int64_t>(-offset, 0, extent);
      const int64_t last = std::clamp<int64_t>(spec.input[from] - offset, first, extent);
      const int64_t from_stride = in_strides[static_cast<size_t>(from)];
      start_ += offset * from_stride;
      axes_.insert(axes_.begin(), {extent, stride, from_stride, first, last});
      stride *= extent;
    }
    merge();
    take_inner();
  }

  void apply(const TensorView& x, const TensorView& y) override {
    const float* in = x.f32();
    float* out = y.f32();
    const int64_t chunks = (row_.extent + chunk - 1) / chunk;
    int64_t blocks = chunks;
    for (const Axis& axis : axes_) blocks *= axis.extent;
    each_row(team_.threads, y.shape[0] * blocks, out_sample_ / blocks + 1, [=, this](int64_t block) {
      const int64_t sample = block / blocks, first = block % chunks * chunk;
      int64_t rest = block % blocks / chunks, to = sample * out_sample_, from = sample * in_sample_ + start_;
      bool inside = true;
      for (size_t k = axes_.size(); k-- > 0;) {
        const Axis& axis = axes_[k];
        const int64_t i = rest % axis.extent;
        rest /= axis.extent;
        inside &= i >= axis.first && i < axis.last;
        to += i * axis.stride;
        from += i * axis.from_stride;
      }
      const int64_t last = std::min(first + chunk, row_.extent);
      if (column_.from_stride == 1)
        copy_runs(in, from, out + to, first, last, inside);
      else
        copy_tiles(in, from, out + to, first, last, inside);
    });
  }

 private:
  static constexpr int64_t chunk = 64;  // rows of a block

  // Axes of extent 1 go; two neighbours that are neighbours in the input too, the inner one whole, become one.
  void merge() {
    std::erase_if(axes_, [](const Axis& axis) { return axis.extent == 1 && axis.first == 0 && axis.last == 1; });
    for (size_t k = axes_.size(); k-- > 1;) {
      Axis& outer = axes_[k - 1];
      const Axis& inner = axes_[k];
      const bool whole = inner.first == 0 && inner.last == inner.extent;
      if (!whole || outer.from_stride != inner.from_stride * inner.extent) continue;
      outer = {outer.extent * inner.extent, inner.stride, inner.from_stride, outer.first * inner.extent,
               outer.last * inner.extent};
      axes_.erase(axes_.begin() + static_cast<std::ptrdiff_t>(k));
    }
  }

  // The two axes of a block: the output's last, and the one that is last in the input, or else the one before.
  void take_inner() {
    if (axes_.empty()) return;
    column_ = axes_.back();
    axes_.pop_back();
    if (axes_.empty()) return;
    size_t k = axes_.size() - 1;
    for (size_t other = 0; column_.from_stride != 1 && other < axes_.size(); ++other)
      if (axes_[other].from_stride == 1) k = other;
    row_ = axes_[k];
    axes_.erase(axes_.begin() + static_cast<std::ptrdiff_t>(k));
  }

  void copy_runs(const float* in, int64_t from, float* out, int64_t first, int64_t last, bool inside) const {
    for (int64_t r = first; r < last; ++r) {
      float* to = out + r * row_.stride;
      const bool filled = !inside || r < row_.first || r >= row_.last;
      const int64_t begin = filled ? column_.extent : column_.first, end = filled ? column_.extent : column_.last;
      std::fill(to, to + begin, fill_);
      if (end > begin) std::copy_n(in + from + r * row_.from_stride + begin, end - begin, to + begin);
      std::fill(to + end, to + column_.extent, fill_);
    }
  }

  void copy_tiles(const float* in, int64_t from, float* out, int64_t first, int64_t last, bool inside) const {
    if (!inside || row_.first > 0 || row_.last < row_.extent || column_.first > 0 || column_.last < column_.extent)
      for (int64_t r = first; r < last; ++r)
        for (int64_t c = 0; c < column_.extent; ++c) out[r * row_.stride + c] = fill_;
    if (!inside) return;
    constexpr int64_t tile = 16;
    for (int64_t r0 = std::max(first, row_.first); r0 < std::min(last, row_.last); r0 += tile)
      for (int64_t c0 = column_.first; c0 < column_.last; c0 += tile) {
        const int64_t r1 = std::min({r0 + tile, last, row_.last}), c1 = std::min(c0 + tile, column_.last);
        for (int64_t r = r0; r < r1; ++r)
          for (int64_t c = c0; c < c1; ++c) out[r * row_.stride + c] = in[from + r * row_.from_stride + c * column_.from_stride];
      }
  }

  const Team& team_;
  int64_t in_sample_, out_sample_;
  float fill_;
  int64_t start_ = 0;       // of the input element that output element 0 would come from
  std::vector<Axis> axes_;  // outside of a block
  Axis row_{1, 0, 0, 0, 1}, column_{1, 1, 1, 0, 1};
};

}  // namespace

std::unique_ptr<RearrangeOp> make_rearrange(const RearrangeSpec& spec, const Team& team) {
  return std::make_unique<CpuRearrange>(spec, team);
}

}  // namespace gpipe::device::cpu
