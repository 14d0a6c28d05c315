#include "core/device/functors/loss.h"

#include "core/device/cpu/ops.h"
#include "core/device/cpu/skeletons.h"

#include <algorithm>

namespace gpipe::device::cpu {
namespace {

class CpuCrossEntropy final : public LossOp {
 public:
  CpuCrossEntropy(const CrossEntropySpec& spec, const Team& team)
      : row_{spec.classes, static_cast<float>(spec.label_smoothing)}, team_(team) {}

  void forward(const TensorView& logits, const TensorView& targets, const TensorView& result, std::byte*) override {
    check_targets(targets);
    const float* in = logits.f32();
    const int32_t* target = targets.i32();
    float* out = result.f32();
    const int64_t samples = result.shape[0], positions = targets.elements() / samples;
    each_row(team_.threads, samples, positions * row_.classes, [=, f = row_](int64_t sample) {
      double losses = 0;
      int64_t hits = 0;
      for (int64_t r = sample * positions; r < (sample + 1) * positions; ++r) {
        if (target[r] == k_ignored_target) continue;
        const auto [loss, correct] = f.forward(in + r * f.classes, target[r]);
        losses += static_cast<double>(loss);
        hits += correct ? 1 : 0;
      }
      out[2 * sample] = static_cast<float>(losses);
      out[2 * sample + 1] = static_cast<float>(hits);
    });
  }

  void backward(const TensorView& logits, const TensorView& targets, float scale, const TensorView& dlogits) override {
    check_targets(targets);
    const float* in = logits.f32();
    const int32_t* target = targets.i32();
    float* out = dlogits.f32();
    each_row(team_.threads, targets.elements(), row_.classes, [=, f = row_](int64_t r) {
      if (target[r] == k_ignored_target)
        std::fill_n(out + r * f.classes, f.classes, 0.0F);
      else
        f.backward(in + r * f.classes, target[r], scale, out + r * f.classes);
    });
  }

 private:
  void check_targets(const TensorView& targets) const {
    const int32_t* target = targets.i32();
    for (int64_t r = 0; r < targets.elements(); ++r)
      if (target[r] != k_ignored_target && (target[r] < 0 || target[r] >= row_.classes))
        throw base::DataError("class {} at place {} of the micro-batch's targets is not in 0..{}", target[r], r,
                              row_.classes - 1);
  }

  CrossEntropyRow row_;
  const Team& team_;
};

class CpuMeanSquaredError final : public LossOp {
 public:
  explicit CpuMeanSquaredError(const Team& team) : team_(team) {}

  void forward(const TensorView& prediction, const TensorView& target, const TensorView& result, std::byte*) override {
    const int64_t rows = prediction.shape[0];
    const float* p = prediction.f32();
    const float* t = target.f32();
    float* out = result.f32();
    each_row(team_.threads, rows, prediction.elements() / rows, [=, f = row_of(prediction)](int64_t r) {
      out[2 * r] = f.forward(p + r * f.width, t + r * f.width);
      out[2 * r + 1] = 0;
    });
  }

  void backward(const TensorView& prediction, const TensorView& target, float scale, const TensorView& dprediction) override {
    const int64_t rows = prediction.shape[0];
    const float* p = prediction.f32();
    const float* t = target.f32();
    float* out = dprediction.f32();
    each_row(team_.threads, rows, prediction.elements() / rows,
             [=, f = row_of(prediction)](int64_t r) { f.backward(p + r * f.width, t + r * f.width, scale, out + r * f.width); });
  }

 private:
  static MeanSquaredErrorRow row_of(const TensorView& view) { return {view.elements() / view.shape[0]}; }

  const Team& team_;
};

}  // namespace

std::unique_ptr<LossOp> make_cross_entropy(const CrossEntropySpec& spec, const Team& team) {
  return std::make_unique<CpuCrossEntropy>(spec, team);
}

std::unique_ptr<LossOp> make_mean_squared_error(const Team& team) { return std::make_unique<CpuMeanSquaredError>(team); }

}  // namespace gpipe::device::cpu
