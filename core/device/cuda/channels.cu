// What runs along the channels of each position, and losses: softmax, a scale of each channel, cross-entropy, squared error.
#include "core/device/cuda/faults.h"
#include "core/device/cuda/ops.h"
#include "core/device/cuda/skeletons.h"
#include "core/device/functors/math.h"

#include <cmath>

namespace gpipe::device::cuda {
namespace {

class CudaSoftmax final : public SoftmaxOp {
 public:
  explicit CudaSoftmax(const Queue& queue) : queue_(queue) {}

  /// A NaN anywhere makes the whole row NaN, by the sum.
  void forward(const TensorView& x, const TensorView& y) override {
    const float* all_in = x.f32();
    float* all_out = y.f32();
    const int64_t width = x.shape.back();
    rows(queue_, "softmax", x.elements() / width, width, [=] GPIPE_KERNEL(auto& team, int64_t row) {
      const float* in = all_in + row * width;
      float* out = all_out + row * width;
      const float largest = team.reduce(
          width, -INFINITY, [&](int64_t i) { return in[i]; }, [](float a, float b) { return b > a ? b : a; });
      team.each(width, [&](int64_t i) { out[i] = exp_f32(in[i] - largest); });
      const double all = team.template sum<double>(width, [&](int64_t i) { return static_cast<double>(out[i]); });
      const float share = static_cast<float>(1.0 / all);
      team.each(width, [&](int64_t i) { out[i] *= share; });
    });
  }
  void backward(const TensorView& y, const TensorView& dy, const TensorView& dx) override {
    const float *result = y.f32(), *all_from = dy.f32();
    float* all_to = dx.f32();
    const int64_t width = y.shape.back();
    rows(queue_, "softmax gradient", y.elements() / width, width, [=] GPIPE_KERNEL(auto& team, int64_t row) {
      const float *p = result + row * width, *from = all_from + row * width;
      float* to = all_to + row * width;
      const float inner = static_cast<float>(
          team.template sum<double>(width, [&](int64_t i) { return static_cast<double>(p[i]) * static_cast<double>(from[i]); }));
      team.each(width, [&](int64_t i) { to[i] = p[i] * (from[i] - inner); });
    });
  }

 private:
  const Queue& queue_;
};

class CudaChannelScale final : public ChannelScaleOp {
 public:
  CudaChannelScale(int64_t channels, const Queue& queue) : channels_(channels), queue_(queue) {}

  // Chunks of a column sum are at most so many, however many rows there are.
  size_t workspace_bytes() const override { return sizeof(double) * static_cast<size_t>(Chunks::most * channels_); }

  void apply(const TensorView& x, const TensorView& scale, const TensorView& y) override {
    const float *in = x.f32(), *factor = scale.f32();
    float* out = y.f32();
    each(queue_, "channel scale", x.elements(),
         [=, channels = channels_] GPIPE_KERNEL(int64_t i) { out[i] = in[i] * factor[i % channels]; });
  }
  void backward_weight(const TensorView& x, const TensorView& dy, const TensorView& dscale, bool accumulate,
                       std::byte* workspace) override {
    const float *in = x.f32(), *from = dy.f32();
    float* out = dscale.f32();
    const int64_t channels = channels_;
    columns<double>(
        queue_, "channel scale gradient", x.elements() / channels, channels, workspace,
        [=] GPIPE_KERNEL(int64_t r, int64_t c) { return static_cast<double>(in[r * channels + c] * from[r * channels + c]); },
        [=] GPIPE_KERNEL(int64_t c, double sum) {
          out[c] = accumulate ? out[c] + static_cast<float>(sum) : static_cast<float>(sum);
        });
  }

 private:
  int64_t channels_;
  const Queue& queue_;
};

/// The first of the largest logits of a row; NaN is larger than everything, so that the loss is NaN too.
struct Largest {
  float value;
  int64_t at;

  GPIPE_KERNEL static Largest of(const Largest& a, const Largest& b) {
    if (a.at < 0) return b;
    if (b.at < 0) return a;
    const bool first = a.at < b.at;
    const Largest &low = first ? a : b, &high = first ? b : a;
    return !(high.value <= low.value) && low.value == low.value ? high : low;
  }
};

template <class Team>
GPIPE_KERNEL Largest largest_of(const Team& team, const float* logits, int64_t classes) {
  return team.reduce(
      classes, Largest{0, -1},
      [&](int64_t c) {
        return Largest{logits[c], c};
      },
      [](const Largest& a, const Largest& b) { return Largest::of(a, b); });
}
template <class Team>
GPIPE_KERNEL double sum_of_exponents(const Team& team, const float* logits, int64_t classes, float shift) {
  return team.template sum<double>(classes, [&](int64_t c) { return static_cast<double>(exp_f32(logits[c] - shift)); });
}

struct Position {
  float loss, hit;
};

class CudaCrossEntropy final : public LossOp {
 public:
  CudaCrossEntropy(const CrossEntropySpec& spec, const Batches& batches, const Queue& queue)
      : classes_(spec.classes),
        smoothing_(static_cast<float>(spec.label_smoothing)),
        workspace_(aligned(sizeof(Position) * static_cast<size_t>(batches.front() * spec.positions))),
        queue_(queue) {}

  size_t workspace_bytes() const override { return workspace_; }

  /// Each position by a team of its own, then the positions of each sample.
  void forward(const TensorView& logits, const TensorView& targets, const TensorView& result, std::byte* workspace) override {
    const float* all_logits = logits.f32();
    const int32_t* target = targets.i32();
    Position* found = reinterpret_cast<Position*>(workspace);
    float* out = result.f32();
    const int64_t samples = result.shape[0], positions = targets.elements() / samples, classes = classes_;
    const float smoothing = smoothing_;
    GP_CHECK(sizeof(Position) * static_cast<size_t>(targets.elements()) <= workspace_);
    find_fault(queue_, Fault::Kind::target, target, targets.elements(), positions, classes);
    rows(queue_, "cross-entropy", targets.elements(), classes, [=] GPIPE_KERNEL(auto& team, int64_t r) {
      const int32_t wanted = target[r];
      Position position{0, 0};
      if (wanted >= 0 && wanted < classes) {  // neither ignored nor a fault
        const float* row = all_logits + r * classes;
        const Largest best = largest_of(team, row, classes);
        const double log_sum = static_cast<double>(best.value) + std::log(sum_of_exponents(team, row, classes, best.value));
        double loss = (1.0 - static_cast<double>(smoothing)) * (log_sum - static_cast<double>(row[wanted]));
        if (smoothing > 0) {
          const double all = team.template sum<double>(classes, [&](int64_t c) { return log_sum - static_cast<double>(row[c]); });
          loss += static_cast<double>(smoothing) / static_cast<double>(classes) * all;
        }
        position = {static_cast<float>(loss), best.at == wanted ? 1.0F : 0.0F};
      }
      team.once([&] { found[r] = position; });
    });
    rows(queue_, "cross-entropy of samples", samples, positions, [=] GPIPE_KERNEL(auto& team, int64_t sample) {
      const Position* own = found + sample * positions;
      const Two sums = team.template sum<Two>(positions, [&](int64_t i) {
        return Two{static_cast<double>(own[i].loss), static_cast<double>(own[i].hit)};
      });
      team.once([&] {
        out[2 * sample] = static_cast<float>(sums.first);
        out[2 * sample + 1] = static_cast<float>(sums.second);
      });
    });
  }

  void backward(const TensorView& logits, const TensorView& targets, float scale, const TensorView& dlogits) override {
    const float* all_logits = logits.f32();
    const int32_t* target = targets.i32();
    float* all_out = dlogits.f32();
    const int64_t classes = classes_;
    const float smoothing = smoothing_;
    rows(queue_, "cross-entropy gradient", targets.elements(), classes, [=] GPIPE_KERNEL(auto& team, int64_t r) {
      const int64_t wanted = target[r];
      const float* row = all_logits + r * classes;
      float* out = all_out + r * classes;
      if (wanted < 0 || wanted >= classes) {
        team.each(classes, [&](int64_t c) { out[c] = 0; });
        return;
      }
      const float shift = largest_of(team, row, classes).value;
      const float share = static_cast<float>(1.0 / sum_of_exponents(team, row, classes, shift));
      const float other = smoothing / static_cast<float>(classes);
      team.each(classes, [&](int64_t c) {
        const float part = other + (c == wanted ? 1.0F - smoothing : 0.0F);
        out[c] = scale * (exp_f32(row[c] - shift) * share - part);
      });
    });
  }

 private:
  int64_t classes_;
  float smoothing_;
  size_t workspace_;
  const Queue& queue_;
};

class CudaMeanSquaredError final : public LossOp {
 public:
  explicit CudaMeanSquaredError(const Queue& queue) : queue_(queue) {}

  void forward(const TensorView& prediction, const TensorView& target, const TensorView& result, std::byte*) override {
    const float *p = prediction.f32(), *t = target.f32();
    float* out = result.f32();
    const int64_t samples = prediction.shape[0], width = prediction.elements() / samples;
    rows(queue_, "squared error", samples, width, [=] GPIPE_KERNEL(auto& team, int64_t r) {
      const double sum = team.template sum<double>(width, [&](int64_t i) {
        const double difference = static_cast<double>(p[r * width + i]) - static_cast<double>(t[r * width + i]);
        return difference * difference;
      });
      team.once([&] {
        out[2 * r] = static_cast<float>(sum / static_cast<double>(width));
        out[2 * r + 1] = 0;
      });
    });
  }
  void backward(const TensorView& prediction, const TensorView& target, float scale, const TensorView& dprediction) override {
    const float *p = prediction.f32(), *t = target.f32();
    float* out = dprediction.f32();
    const float factor = 2.0F * scale / static_cast<float>(prediction.elements() / prediction.shape[0]);
    each(queue_, "squared error gradient", prediction.elements(),
         [=] GPIPE_KERNEL(int64_t i) { out[i] = factor * (p[i] - t[i]); });
  }

 private:
  const Queue& queue_;
};

}  // namespace

std::unique_ptr<SoftmaxOp> make_softmax(const Queue& queue) { return std::make_unique<CudaSoftmax>(queue); }
std::unique_ptr<ChannelScaleOp> make_channel_scale(int64_t channels, const Queue& queue) {
  return std::make_unique<CudaChannelScale>(channels, queue);
}
std::unique_ptr<LossOp> make_cross_entropy(const CrossEntropySpec& spec, const Batches& batches, const Queue& queue) {
  return std::make_unique<CudaCrossEntropy>(spec, batches, queue);
}
std::unique_ptr<LossOp> make_mean_squared_error(const Queue& queue) { return std::make_unique<CudaMeanSquaredError>(queue); }

}  // namespace gpipe::device::cuda
