// Padding, cropping, slicing and transposing as one copy, element by element of the output.
#include "core/device/cuda/ops.h"
#include "core/device/cuda/skeletons.h"
#include "core/device/functors/rounding.h"

#include <array>

namespace gpipe::device::cuda {
namespace {

struct Axis {
  int64_t extent;       // of the output
  int64_t from_stride;  // of the input, for one step along this axis
  int64_t first, last;  // output indices [first, last) that lie on the input
};

/// Plain arrays: a kernel's argument.
struct Move {
  Axis axes[RearrangeSpec::max_axes];
  int rank = 0;
  int64_t start = 0;  // of the input element that output element 0 would come from
  int64_t in_sample, out_sample;
  float fill;

  /// The input element that output element i is; -1: none, `fill`.
  GPIPE_KERNEL int64_t source(int64_t i) const {
    int64_t rest = i % out_sample, from = i / out_sample * in_sample + start;
    bool inside = true;
    for (int k = rank - 1; k >= 0; --k) {
      const Axis& axis = axes[k];
      const int64_t at = rest % axis.extent;
      rest /= axis.extent;
      inside = inside && at >= axis.first && at < axis.last;
      from += at * axis.from_stride;
    }
    return inside ? from : -1;
  }
};

Move move_of(const RearrangeSpec& spec) {
  Move move{{}, 0, 0, spec.input.elements(), spec.output.elements(), static_cast<float>(spec.fill)};
  std::array<int64_t, RearrangeSpec::max_axes> in_strides{};
  int64_t stride = 1;
  for (int j = spec.input.rank() - 1; j >= 0; --j) {
    in_strides[static_cast<size_t>(j)] = stride;
    stride *= spec.input[j];
  }
  for (int k = 0; k < spec.output.rank(); ++k) {
    const size_t at = static_cast<size_t>(k);
    const int from = spec.axes[at];
    const int64_t offset = spec.offset[at], extent = spec.output[k], from_stride = in_strides[static_cast<size_t>(from)];
    const int64_t first = std::clamp<int64_t>(-offset, 0, extent);
    const int64_t last = std::clamp<int64_t>(spec.input[from] - offset, first, extent);
    move.start += offset * from_stride;
    const bool whole = first == 0 && last == extent;
    if (whole && extent == 1) continue;
    // Two neighbours that are neighbours in the input too, the inner one whole, are one axis: fewer divisions.
    if (move.rank > 0 && whole && move.axes[move.rank - 1].from_stride == from_stride * extent) {
      Axis& outer = move.axes[move.rank - 1];
      outer = {outer.extent * extent, from_stride, outer.first * extent, outer.last * extent};
      continue;
    }
    move.axes[move.rank++] = {extent, from_stride, first, last};
  }
  return move;
}

template <class In, class Out>
class CudaRearrange final : public RearrangeOp {
 public:
  CudaRearrange(const RearrangeSpec& spec, const Queue& queue) : move_(move_of(spec)), queue_(queue) {}

  void apply(const TensorView& x, const TensorView& y) override {
    const auto* in = reinterpret_cast<const typename In::Stored*>(x.data);
    auto* out = reinterpret_cast<typename Out::Stored*>(y.data);
    each(queue_, "rearrange", y.elements(), [=, move = move_] GPIPE_KERNEL(int64_t i) {
      const int64_t from = move.source(i);
      out[i] = Out::narrow(from < 0 ? move.fill : In::widen(in[from]));
    });
  }

 private:
  Move move_;
  const Queue& queue_;
};

}  // namespace

std::unique_ptr<RearrangeOp> make_rearrange(const RearrangeSpec& spec, const Queue& queue, Precision in, Precision out) {
  if (in == Precision::bf16) return std::make_unique<CudaRearrange<Bf16, F32>>(spec, queue);
  if (in == Precision::f16) return std::make_unique<CudaRearrange<F16, F32>>(spec, queue);
  if (out == Precision::bf16) return std::make_unique<CudaRearrange<F32, Bf16>>(spec, queue);
  if (out == Precision::f16) return std::make_unique<CudaRearrange<F32, F16>>(spec, queue);
  return std::make_unique<CudaRearrange<F32, F32>>(spec, queue);
}

}  // namespace gpipe::device::cuda
