// Batch normalisation over [rows, channels] and normalisation of a sample's own groups. All sums are in double and in an
// order that follows from the extents alone.
#include "core/device/cuda/ops.h"
#include "core/device/cuda/skeletons.h"

#include <cmath>

namespace gpipe::device::cuda {
namespace {

GPIPE_KERNEL float inverse_deviation(float variance, double epsilon) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(variance) + epsilon));
}

class CudaBatchNorm final : public BatchNormOp {
 public:
  CudaBatchNorm(const BatchNormSpec& spec, const Batches& batches, const Queue& queue)
      : epsilon_(spec.epsilon), channels_(spec.sample.back()), positions_(spec.sample.elements() / channels_), queue_(queue) {
    for (int64_t batch : batches) sums_ = std::max(sums_, columns_bytes<Two>(batch * positions_, channels_));
  }

  // Partial sums, then three coefficients a channel.
  size_t workspace_bytes() const override { return sums_ + aligned(3 * sizeof(float) * static_cast<size_t>(channels_)); }

  void forward_train(const TensorView& x, const TensorView& scale, const TensorView& shift, const TensorView& y,
                     const TensorView& mean, const TensorView& variance, std::byte* workspace) override {
    const int64_t rows = rows_of(x), channels = channels_;
    const float* in = x.f32();
    float *center = mean.f32(), *spread = variance.f32();
    const double all = static_cast<double>(rows);
    columns<double>(
        queue_, "batch norm mean", rows, channels, workspace,
        [=] GPIPE_KERNEL(int64_t r, int64_t c) { return static_cast<double>(in[r * channels + c]); },
        [=] GPIPE_KERNEL(int64_t c, double sum) { center[c] = static_cast<float>(sum / all); });
    // Around the rounded mean; `first` mends what the rounding left.
    columns<Two>(
        queue_, "batch norm variance", rows, channels, workspace,
        [=] GPIPE_KERNEL(int64_t r, int64_t c) {
          const double d = static_cast<double>(in[r * channels + c]) - static_cast<double>(center[c]);
          return Two{d, d * d};
        },
        [=] GPIPE_KERNEL(int64_t c, const Two& sum) {
          spread[c] = static_cast<float>((sum.second - sum.first * sum.first / all) / all);
        });
    normalise(x, scale, shift, mean, variance, y, workspace);
  }

  void forward_eval(const TensorView& x, const TensorView& scale, const TensorView& shift, const TensorView& mean,
                    const TensorView& variance, const TensorView& y, std::byte* workspace) override {
    normalise(x, scale, shift, mean, variance, y, workspace);
  }

  void backward(const TensorView& x, const TensorView& dy, const TensorView& scale, const TensorView& mean,
                const TensorView& variance, const TensorView& dx, const TensorView& dscale, const TensorView& dshift,
                bool accumulate, std::byte* workspace) override {
    const int64_t rows = rows_of(x), channels = channels_;
    const float *in = x.f32(), *gradient = dy.f32(), *center = mean.f32(), *spread = variance.f32(), *factor = scale.f32();
    float *to_scale = dscale.f32(), *to_shift = dshift.f32(), *out = dx.f32();
    float* coefficients = factors(workspace);
    const double all = static_cast<double>(rows), epsilon = epsilon_;
    columns<Two>(
        queue_, "batch norm gradient sums", rows, channels, workspace,
        [=] GPIPE_KERNEL(int64_t r, int64_t c) {
          const float d = gradient[r * channels + c];
          return Two{static_cast<double>(d), static_cast<double>(d * (in[r * channels + c] - center[c]))};
        },
        [=] GPIPE_KERNEL(int64_t c, const Two& sum) {
          const double inverse = inverse_deviation(spread[c], epsilon), product = sum.second * inverse;
          const float p = static_cast<float>(product), s = static_cast<float>(sum.first);
          if (to_scale != nullptr) to_scale[c] = accumulate ? to_scale[c] + p : p;
          if (to_shift != nullptr) to_shift[c] = accumulate ? to_shift[c] + s : s;
          coefficients[c] = static_cast<float>(inverse * (factor != nullptr ? factor[c] : 1.0F));
          coefficients[channels + c] = static_cast<float>(sum.first / all);
          coefficients[2 * channels + c] = static_cast<float>(product * inverse / all);
        });
    if (out == nullptr) return;
    each(queue_, "batch norm gradient", rows * channels, [=] GPIPE_KERNEL(int64_t i) {
      const int64_t c = i % channels;
      const float d = (gradient[i] - coefficients[channels + c]) - (in[i] - center[c]) * coefficients[2 * channels + c];
      out[i] = d * coefficients[c];
    });
  }

  size_t state_bytes() const override { return sizeof(double) * static_cast<size_t>(1 + 2 * channels_); }

  // state: rows so far, then mean and sum of squared deviations of each channel. The rows are written last, by a kernel of
  // their own, because every channel reads them.
  void gather(const TensorView& mean, const TensorView& variance, int64_t rows, bool first, std::byte* state) override {
    double* total = reinterpret_cast<double*>(state);
    double *center = total + 1, *squares = center + channels_;
    const float *m = mean.f32(), *v = variance.f32();
    const double added = static_cast<double>(rows);
    each(queue_, "batch norm gather", channels_, [=] GPIPE_KERNEL(int64_t c) {
      const double before = first ? 0 : *total, now = before + added;
      const double own = m[c], s = v[c] * added;
      const double delta = first ? 0 : own - center[c];
      center[c] = first ? own : center[c] + delta * (added / now);
      squares[c] = first ? s : squares[c] + s + delta * delta * (before * added / now);
    });
    each(queue_, "batch norm gather", 1, [=] GPIPE_KERNEL(int64_t) { *total = first ? added : *total + added; });
  }

  void update_running(const std::byte* state, double momentum, const TensorView& running_mean,
                      const TensorView& running_variance) override {
    const double* total = reinterpret_cast<const double*>(state);
    const double *center = total + 1, *squares = center + channels_;
    float *mean = running_mean.f32(), *variance = running_variance.f32();
    each(queue_, "batch norm running averages", channels_, [=] GPIPE_KERNEL(int64_t c) {
      const double degrees = *total - 1 > 1 ? *total - 1 : 1;
      mean[c] = static_cast<float>((1 - momentum) * mean[c] + momentum * center[c]);
      variance[c] = static_cast<float>((1 - momentum) * variance[c] + momentum * (squares[c] / degrees));
    });
  }

  void normalise(const TensorView& x, const TensorView& scale, const TensorView& shift, const TensorView& mean,
                 const TensorView& variance, const TensorView& y, std::byte* workspace) const {
    const float *in = x.f32(), *center = mean.f32(), *spread = variance.f32(), *own = scale.f32(), *plus = shift.f32();
    float *factor = factors(workspace), *out = y.f32();
    const int64_t channels = channels_;
    const double epsilon = epsilon_;
    each(queue_, "batch norm factors", channels,
         [=] GPIPE_KERNEL(int64_t c) { factor[c] = inverse_deviation(spread[c], epsilon) * (own != nullptr ? own[c] : 1.0F); });
    each(queue_, "batch norm", x.elements(), [=] GPIPE_KERNEL(int64_t i) {
      const int64_t c = i % channels;
      out[i] = (in[i] - center[c]) * factor[c] + (plus != nullptr ? plus[c] : 0.0F);
    });
  }

 private:
  int64_t rows_of(const TensorView& x) const { return x.shape[0] * positions_; }
  float* factors(std::byte* workspace) const { return reinterpret_cast<float*>(workspace + sums_); }

  double epsilon_;
  int64_t channels_, positions_;
  size_t sums_ = 0;
  const Queue& queue_;
};

/// Where the elements of a group lie: `positions` runs of `width` channels.
struct Groups {
  int64_t positions, channels, groups, width;

  GPIPE_KERNEL int64_t first(int64_t group) const { return group / groups * positions * channels + group % groups * width; }
  GPIPE_KERNEL int64_t offset(int64_t i) const { return i / width * channels + i % width; }
  GPIPE_KERNEL int64_t channel(int64_t group, int64_t i) const { return group % groups * width + i % width; }
};

class CudaGroupNorm final : public GroupNormOp {
 public:
  CudaGroupNorm(const GroupNormSpec& spec, const Batches& batches, const Queue& queue)
      : spec_(spec), groups_{spec.positions, spec.channels, spec.groups, spec.channels / spec.groups}, queue_(queue) {
    for (int64_t rows : batches) workspace_ = std::max(workspace_, columns_bytes<Two>(rows * spec.positions, spec.channels));
  }

  size_t workspace_bytes() const override { return workspace_; }
  size_t saved_bytes(int64_t rows) const override { return 2 * sizeof(float) * static_cast<size_t>(rows * spec_.groups); }

  void forward(const TensorView& x, const TensorView& scale, const TensorView& shift, const TensorView& y,
               std::byte* saved) override {
    const float *all_in = x.f32(), *factor = scale.f32(), *plus = shift.f32();
    float *all_out = y.f32(), *statistics = reinterpret_cast<float*>(saved);
    const Groups g = groups_;
    const int64_t count = g.positions * g.width;
    const bool center = spec_.center;
    const double epsilon = spec_.epsilon;
    rows(queue_, "group norm", rows_of(x) * g.groups, count, [=] GPIPE_KERNEL(auto& team, int64_t group) {
      const float* in = all_in + g.first(group);
      float* out = all_out + g.first(group);
      const double n = static_cast<double>(count);
      float mean = 0;
      if (center)
        mean = static_cast<float>(
            team.template sum<double>(count, [&](int64_t i) { return static_cast<double>(in[g.offset(i)]); }) / n);
      const double squares = team.template sum<double>(count, [&](int64_t i) {
        const double d = static_cast<double>(in[g.offset(i)] - mean);
        return d * d;
      });
      const float inverse = static_cast<float>(1 / std::sqrt(squares / n + epsilon));
      team.once([&] {
        statistics[2 * group] = mean;
        statistics[2 * group + 1] = inverse;
      });
      team.each(count, [&](int64_t i) {
        const int64_t at = g.offset(i), channel = g.channel(group, i);
        float v = (in[at] - mean) * inverse;
        if (factor != nullptr) v *= factor[channel];
        if (plus != nullptr) v += plus[channel];
        out[at] = v;
      });
    });
  }

  void backward_input(const TensorView& x, const TensorView& dy, const TensorView& scale, const std::byte* saved,
                      const TensorView& dx) override {
    const float *all_in = x.f32(), *all_gradient = dy.f32(), *factor = scale.f32();
    const float* statistics = reinterpret_cast<const float*>(saved);
    float* all_out = dx.f32();
    const Groups g = groups_;
    const int64_t count = g.positions * g.width;
    const bool center = spec_.center;
    rows(queue_, "group norm gradient", rows_of(x) * g.groups, count, [=] GPIPE_KERNEL(auto& team, int64_t group) {
      const float mean = statistics[2 * group], inverse = statistics[2 * group + 1];
      const float *in = all_in + g.first(group), *gradient = all_gradient + g.first(group);
      float* out = all_out + g.first(group);
      const auto scaled = [&](int64_t i) {
        const float d = gradient[g.offset(i)];
        return factor != nullptr ? d * factor[g.channel(group, i)] : d;
      };
      const auto normal = [&](int64_t i) { return (in[g.offset(i)] - mean) * inverse; };
      const Two sums = team.template sum<Two>(count, [&](int64_t i) {
        const float d = scaled(i);
        return Two{static_cast<double>(d), static_cast<double>(d * normal(i))};
      });
      const double n = static_cast<double>(count);
      const float mean_gradient = center ? static_cast<float>(sums.first / n) : 0.0F;
      const float mean_product = static_cast<float>(sums.second / n);
      team.each(count, [&](int64_t i) { out[g.offset(i)] = (scaled(i) - mean_gradient - normal(i) * mean_product) * inverse; });
    });
  }

  void backward_weight(const TensorView& x, const TensorView& dy, const std::byte* saved, const TensorView& dscale,
                       const TensorView& dshift, bool accumulate, std::byte* workspace) override {
    const float *in = x.f32(), *gradient = dy.f32(), *statistics = reinterpret_cast<const float*>(saved);
    float *to_scale = dscale.f32(), *to_shift = dshift.f32();
    const Groups g = groups_;
    columns<Two>(
        queue_, "group norm weight gradient", rows_of(x) * g.positions, g.channels, workspace,
        [=] GPIPE_KERNEL(int64_t line, int64_t c) {
          const float* own = statistics + 2 * (line / g.positions * g.groups + c / g.width);
          const int64_t at = line * g.channels + c;
          return Two{static_cast<double>(gradient[at] * ((in[at] - own[0]) * own[1])), static_cast<double>(gradient[at])};
        },
        [=] GPIPE_KERNEL(int64_t c, const Two& sum) {
          const float product = static_cast<float>(sum.first), plain = static_cast<float>(sum.second);
          to_scale[c] = accumulate ? to_scale[c] + product : product;
          if (to_shift != nullptr) to_shift[c] = accumulate ? to_shift[c] + plain : plain;
        });
  }

 private:
  int64_t rows_of(const TensorView& x) const { return x.elements() / (spec_.positions * spec_.channels); }

  GroupNormSpec spec_;
  Groups groups_;
  size_t workspace_ = 0;
  const Queue& queue_;
};

}  // namespace

std::unique_ptr<BatchNormOp> make_batch_norm(const BatchNormSpec& spec, const Batches& batches, const Queue& queue) {
  return std::make_unique<CudaBatchNorm>(spec, batches, queue);
}
std::unique_ptr<GroupNormOp> make_group_norm(const GroupNormSpec& spec, const Batches& batches, const Queue& queue) {
  return std::make_unique<CudaGroupNorm>(spec, batches, queue);
}

}  // namespace gpipe::device::cuda
