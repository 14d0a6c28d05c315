// Depthwise convolution, a filter a channel: kernels of ours, because it waits for memory and cuDNN's kernels for it are slow
// in f32. A thread writes one element from a window that it walks in ascending order; weight gradients are column sums.
// Factors are rounded to the precision as they are read.
#include "core/device/cuda/ops.h"
#include "core/device/cuda/skeletons.h"
#include "core/device/functors/rounding.h"

namespace gpipe::device::cuda {
namespace {

/// One axis of the windows. Kernel offset k of output o lies on input o * stride - pad + k * dilation.
struct Axis {
  int64_t in, out, kernel, stride, dilation, pad;

  GPIPE_KERNEL int64_t input(int64_t o, int64_t k) const { return o * stride - pad + k * dilation; }
  /// The output that reads input i at offset k; -1: none.
  GPIPE_KERNEL int64_t output(int64_t i, int64_t k) const {
    const int64_t at = i + pad - k * dilation;
    return at >= 0 && at % stride == 0 && at / stride < out ? at / stride : -1;
  }
};

GPIPE_KERNEL inline float rounded(Precision precision, float x) {
  switch (precision) {
    case Precision::tf32: return Tf32::nearest(x);
    case Precision::bf16: return Bf16::nearest(x);
    case Precision::f16: return F16::nearest(x);
    default: return x;
  }
}

/// x [N,H,W,C], weight [O,1,kH,kW], y [N,H',W',O]; output channel o reads input channel o / (O / C).
struct Filters {
  Axis rows, columns;
  int64_t in_channels, out_channels;
  Precision precision;

  GPIPE_KERNEL float product(float a, float b) const { return rounded(precision, a) * rounded(precision, b); }
  GPIPE_KERNEL int64_t taps() const { return rows.kernel * columns.kernel; }
  GPIPE_KERNEL int64_t multiple() const { return out_channels / in_channels; }

  GPIPE_KERNEL float forward(const float* x, const float* weight, int64_t i) const {
    const int64_t o = i % out_channels, ow = i / out_channels % columns.out, row = i / out_channels / columns.out;
    const int64_t oh = row % rows.out, sample = row / rows.out;
    const float* image = x + sample * rows.in * columns.in * in_channels + o / multiple();
    float sum = 0;
    for (int64_t kh = 0; kh < rows.kernel; ++kh)
      for (int64_t kw = 0; kw < columns.kernel; ++kw) {
        const int64_t ih = rows.input(oh, kh), iw = columns.input(ow, kw);
        if (ih < 0 || ih >= rows.in || iw < 0 || iw >= columns.in) continue;
        sum += product(image[(ih * columns.in + iw) * in_channels], weight[o * taps() + kh * columns.kernel + kw]);
      }
    return sum;
  }

  GPIPE_KERNEL float backward(const float* dy, const float* weight, int64_t i) const {
    const int64_t c = i % in_channels, iw = i / in_channels % columns.in, row = i / in_channels / columns.in;
    const int64_t ih = row % rows.in, sample = row / rows.in;
    const float* image = dy + sample * rows.out * columns.out * out_channels;
    float sum = 0;
    for (int64_t kh = 0; kh < rows.kernel; ++kh)
      for (int64_t kw = 0; kw < columns.kernel; ++kw) {
        const int64_t oh = rows.output(ih, kh), ow = columns.output(iw, kw);
        if (oh < 0 || ow < 0) continue;
        for (int64_t o = c * multiple(); o < (c + 1) * multiple(); ++o)
          sum += product(image[(oh * columns.out + ow) * out_channels + o], weight[o * taps() + kh * columns.kernel + kw]);
      }
    return sum;
  }

  /// What output position `position` (of all samples) adds to the weight of channel o at offset `tap`.
  GPIPE_KERNEL double weight_product(const float* x, const float* dy, int64_t position, int64_t o, int64_t tap) const {
    const int64_t ow = position % columns.out, row = position / columns.out;
    const int64_t oh = row % rows.out, sample = row / rows.out;
    const int64_t ih = rows.input(oh, tap / columns.kernel), iw = columns.input(ow, tap % columns.kernel);
    if (ih < 0 || ih >= rows.in || iw < 0 || iw >= columns.in) return 0;
    const float v = x[((sample * rows.in + ih) * columns.in + iw) * in_channels + o / multiple()];
    return static_cast<double>(product(v, dy[position * out_channels + o]));
  }
};

class CudaDepthwise final : public WeightedOp {
 public:
  CudaDepthwise(const ConvolutionSpec& spec, const Batches& batches, const Queue& queue, Precision precision)
      : filters_{{spec.in_height, spec.out_height, spec.kernel[0], spec.stride[0], spec.dilation[0], spec.pad_top},
                 {spec.in_width, spec.out_width, spec.kernel[1], spec.stride[1], spec.dilation[1], spec.pad_left},
                 spec.in_channels,
                 spec.out_channels,
                 precision},
        queue_(queue) {
    const int64_t taps = spec.kernel[0] * spec.kernel[1];
    for (int64_t batch : batches)
      workspace_ = std::max(workspace_, columns_bytes<double>(batch * spec.out_height * spec.out_width,
                                                              std::max<int64_t>(taps, 1) * spec.out_channels));
  }

  size_t workspace_bytes() const override { return workspace_; }
  std::string implementation() const override { return "depthwise"; }
  size_t packed_weight_bytes() const override { return 0; }
  size_t packed_gradient_bytes() const override { return 0; }
  void pack_weight(const TensorView&, std::byte*, std::byte*) override {}
  void unpack_gradient(const std::byte*, const TensorView&, std::byte*) override {}

  void forward(const TensorView& x, const Weight& w, const TensorView& bias, const TensorView& y, std::byte*) override {
    const float *in = x.f32(), *weight = w.plain.f32(), *plus = bias.f32();
    float* out = y.f32();
    each(queue_, "depthwise convolution", y.elements(), [=, f = filters_] GPIPE_KERNEL(int64_t i) {
      const float sum = f.forward(in, weight, i);
      out[i] = plus != nullptr ? sum + plus[i % f.out_channels] : sum;
    });
  }

  void backward_input(const TensorView& dy, const Weight& w, const TensorView& dx, std::byte*) override {
    const float *from = dy.f32(), *weight = w.plain.f32();
    float* to = dx.f32();
    each(queue_, "depthwise input gradient", dx.elements(),
         [=, f = filters_] GPIPE_KERNEL(int64_t i) { to[i] = f.backward(from, weight, i); });
  }

  void backward_weight(const TensorView& x, const TensorView& dy, const WeightGradient& dw, const TensorView& dbias,
                       bool accumulate, std::byte* workspace) override {
    const float *in = x.f32(), *from = dy.f32();
    const int64_t channels = filters_.out_channels, positions = dy.elements() / channels;
    const int64_t taps = filters_.rows.kernel * filters_.columns.kernel;
    // Column tap * O + o: neighbours read neighbours.
    sum_to(
        positions, taps * channels, workspace, dw.plain.f32(), accumulate,
        [=, f = filters_] GPIPE_KERNEL(int64_t position, int64_t c) {
          return f.weight_product(in, from, position, c % channels, c / channels);
        },
        [=] GPIPE_KERNEL(int64_t c) { return c % channels * taps + c / channels; });
    if (dbias)
      sum_to(
          positions, channels, workspace, dbias.f32(), accumulate,
          [=] GPIPE_KERNEL(int64_t position, int64_t c) { return static_cast<double>(from[position * channels + c]); },
          [=] GPIPE_KERNEL(int64_t c) { return c; });
  }

  /// out[place(c)] (+)= sum over the rows of f(row, c)
  template <class F, class Place>
  void sum_to(int64_t rows, int64_t count, std::byte* workspace, float* out, bool accumulate, const F& f,
              const Place& place) const {
    columns<double>(queue_, "depthwise weight gradient", rows, count, workspace, f, [=] GPIPE_KERNEL(int64_t c, double sum) {
      float& to = out[place(c)];
      to = accumulate ? to + static_cast<float>(sum) : static_cast<float>(sum);
    });
  }

 private:
  Filters filters_;
  size_t workspace_ = 0;
  const Queue& queue_;
};

}  // namespace

std::unique_ptr<WeightedOp> make_depthwise(const ConvolutionSpec& spec, const Batches& batches, const Queue& queue,
                                           Precision precision) {
  return std::make_unique<CudaDepthwise>(spec, batches, queue, precision);
}

}  // namespace gpipe::device::cuda
