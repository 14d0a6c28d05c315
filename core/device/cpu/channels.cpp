// What runs along the channels of each position: softmax, and a scale of each channel.
#include "core/device/cpu/ops.h"
#include "core/device/cpu/skeletons.h"
#include "core/device/functors/softmax.h"

namespace gpipe::device::cpu {
namespace {

class CpuSoftmax final : public SoftmaxOp {
 public:
  explicit CpuSoftmax(const Team& team) : team_(team) {}

  void forward(const TensorView& x, const TensorView& y) override {
    const SoftmaxRow row{x.shape.back()};
    const float* in = x.f32();
    float* out = y.f32();
    each_row(team_.threads, x.elements() / row.width, 8 * row.width,
             [=](int64_t r) { row.forward(in + r * row.width, out + r * row.width); });
  }
  void backward(const TensorView& y, const TensorView& dy, const TensorView& dx) override {
    const SoftmaxRow row{y.shape.back()};
    const float *result = y.f32(), *from = dy.f32();
    float* to = dx.f32();
    each_row(team_.threads, y.elements() / row.width, 4 * row.width,
             [=](int64_t r) { row.backward(result + r * row.width, from + r * row.width, to + r * row.width); });
  }

 private:
  const Team& team_;
};

class CpuChannelScale final : public ChannelScaleOp {
 public:
  CpuChannelScale(int64_t channels, const Team& team) : channels_(channels), team_(team) {}

  size_t workspace_bytes() const override { return static_cast<size_t>(parts * channels_) * sizeof(float); }

  void apply(const TensorView& x, const TensorView& scale, const TensorView& y) override {
    const float *in = x.f32(), *factor = scale.f32();
    float* out = y.f32();
    each_row(team_.threads, x.elements() / channels_, channels_, [=, channels = channels_](int64_t row) {
#pragma GCC ivdep
      for (int64_t c = 0; c < channels; ++c) out[row * channels + c] = in[row * channels + c] * factor[c];
    });
  }

  // Rows are summed in parts whose bounds depend on their number alone, the parts in their order.
  void backward_weight(const TensorView& x, const TensorView& dy, const TensorView& dscale, bool accumulate,
                       std::byte* workspace) override {
    const int64_t rows = x.elements() / channels_, channels = channels_;
    const float *in = x.f32(), *from = dy.f32();
    float* partial = reinterpret_cast<float*>(workspace);
    each_part(team_.threads, parts, x.elements(), [=](int64_t first, int64_t last) {
      for (int64_t part = first; part < last; ++part) {
        float* sum = partial + part * channels;
        std::fill(sum, sum + channels, 0.0F);
        for (int64_t row = rows * part / parts; row < rows * (part + 1) / parts; ++row)
#pragma GCC ivdep
          for (int64_t c = 0; c < channels; ++c) sum[c] += in[row * channels + c] * from[row * channels + c];
      }
    });
    float* out = dscale.f32();
    for (int64_t c = 0; c < channels; ++c) {
      float sum = 0;
      for (int64_t part = 0; part < parts; ++part) sum += partial[part * channels + c];
      out[c] = accumulate ? out[c] + sum : sum;
    }
  }

 private:
  static constexpr int64_t parts = 32;
  int64_t channels_;
  const Team& team_;
};

}  // namespace

std::unique_ptr<SoftmaxOp> make_softmax(const Team& team) { return std::make_unique<CpuSoftmax>(team); }
std::unique_ptr<ChannelScaleOp> make_channel_scale(int64_t channels, const Team& team) {
  return std::make_unique<CpuChannelScale>(channels, team);
}

}  // namespace gpipe::device::cpu
