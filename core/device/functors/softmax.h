// Softmax of one row, written once for every backend. Sums run in eight lanes, then in their order.
#pragma once

#include "core/device/functors/math.h"

namespace gpipe::device {

struct SoftmaxRow {
  int64_t width;

  /// A NaN anywhere makes the whole row NaN.
  GPIPE_BOTH void forward(const float* x, float* y) const {
    float largest = x[0];
    for (int64_t i = 1; i < width; ++i) largest = x[i] > largest ? x[i] : largest;
    for (int64_t i = 0; i < width; ++i) y[i] = exp_f32(x[i] - largest);
    const float share = static_cast<float>(1.0 / sum([y](int64_t i) { return static_cast<double>(y[i]); }));
    for (int64_t i = 0; i < width; ++i) y[i] *= share;
  }

  GPIPE_BOTH void backward(const float* y, const float* dy, float* dx) const {
    const float inner = static_cast<float>(sum([=](int64_t i) { return static_cast<double>(y[i]) * dy[i]; }));
    for (int64_t i = 0; i < width; ++i) dx[i] = y[i] * (dy[i] - inner);
  }

 private:
  template <class F>
  GPIPE_BOTH double sum(const F& f) const {
    constexpr int64_t lanes = 8;
    double lane[lanes] = {};
    int64_t i = 0;
    for (; i + lanes <= width; i += lanes)
      for (int64_t j = 0; j < lanes; ++j) lane[j] += f(i + j);
    for (int64_t j = 0; i < width; ++i, ++j) lane[j] += f(i);
    double all = 0;
    for (double x : lane) all += x;
    return all;
  }
};

}  // namespace gpipe::device
