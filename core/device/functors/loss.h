// Losses of one row, written once for every backend: see LossOp in core/device/ops.h.
#pragma once

#include "core/device/functors/math.h"

#include <cmath>
#include <cstdint>

namespace gpipe::device {

/// Softmax cross-entropy with label smoothing as torch.nn.functional.cross_entropy defines it:
/// loss = -sum_c q_c log p_c, q = (1 - smoothing) onehot + smoothing / classes.
struct CrossEntropyRow {
  int64_t classes;
  float smoothing;

  struct Result {
    float loss;
    bool correct;
  };

  GPIPE_BOTH Result forward(const float* logits, int32_t target) const {
    const int64_t best = largest(logits);
    const double log_sum = static_cast<double>(logits[best]) + std::log(sum_of_exponents(logits, logits[best]));
    double loss = (1.0 - smoothing) * (log_sum - logits[target]);
    if (smoothing > 0) {
      double sum = 0;
      for (int64_t c = 0; c < classes; ++c) sum += log_sum - logits[c];
      loss += smoothing / static_cast<double>(classes) * sum;
    }
    return {static_cast<float>(loss), best == target};
  }

  GPIPE_BOTH void backward(const float* logits, int32_t target, float scale, float* dlogits) const {
    const float shift = logits[largest(logits)];
    const float share = static_cast<float>(1.0 / sum_of_exponents(logits, shift));
    const float other = smoothing / static_cast<float>(classes);
    for (int64_t c = 0; c < classes; ++c) {
      const float wanted = other + (c == target ? 1.0F - smoothing : 0.0F);
      dlogits[c] = scale * (exp_f32(logits[c] - shift) * share - wanted);
    }
  }

 private:
  // The first of the largest; a NaN anywhere gives itself, so that the loss is NaN too.
  GPIPE_BOTH int64_t largest(const float* logits) const {
    int64_t best = 0;
    for (int64_t c = 1; c < classes; ++c)
      if (!(logits[c] <= logits[best]) && logits[best] == logits[best]) best = c;
    return best;
  }

  GPIPE_BOTH double sum_of_exponents(const float* logits, float shift) const {
    constexpr int64_t lanes = 8;
    double lane[lanes] = {};
    int64_t c = 0;
    for (; c + lanes <= classes; c += lanes)
      for (int64_t j = 0; j < lanes; ++j) lane[j] += exp_f32(logits[c + j] - shift);
    for (int64_t j = 0; c < classes; ++c, ++j) lane[j] += exp_f32(logits[c] - shift);
    double sum = 0;
    for (double x : lane) sum += x;
    return sum;
  }
};

/// Mean over the row's elements of (prediction - target)^2.
struct MeanSquaredErrorRow {
  int64_t width;

  GPIPE_BOTH float forward(const float* prediction, const float* target) const {
    double sum = 0;
    for (int64_t i = 0; i < width; ++i) {
      const double difference = static_cast<double>(prediction[i]) - target[i];
      sum += difference * difference;
    }
    return static_cast<float>(sum / static_cast<double>(width));
  }
  GPIPE_BOTH void backward(const float* prediction, const float* target, float scale, float* dprediction) const {
    const float factor = 2.0F * scale / static_cast<float>(width);
    for (int64_t i = 0; i < width; ++i) dprediction[i] = factor * (prediction[i] - target[i]);
  }
};

}  // namespace gpipe::device
