// exp, tanh and the normal distribution in plain float arithmetic: no branches and no calls, so that a loop over them
// becomes vector code, and the same operations in the same order give the same bits on every processor. Errors are a few
// units in the last place. NaN stays NaN.
#pragma once

#include "core/device/functors/update.h"

#include <bit>
#include <cstdint>

namespace gpipe::device {

/// e^x, x clamped to [-87.3, 88.3]. Cody-Waite reduction x = n ln 2 + r, Taylor's series in r up to r^7.
GPIPE_BOTH inline float exp_f32(float x) {
  x = x < -87.3F ? -87.3F : x;
  x = x > 88.3F ? 88.3F : x;
  constexpr float shift = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer, which its low bits then hold
  const float shifted = x * 1.44269504F + shift;
  const float n = shifted - shift;
  const float r = (x - n * 0.693359375F) - n * -2.12194440e-4F;
  float p = 1.0F / 5040;
  p = p * r + 1.0F / 720;
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  const uint32_t power = (std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(shift) + 127U) << 23;
  return p * std::bit_cast<float>(power);
}

GPIPE_BOTH inline float sigmoid_f32(float x) { return 1.0F / (1.0F + exp_f32(-x)); }

/// Near 0 the odd polynomial of Cephes' tanhf (Moshier), else by e^(-2|x|).
GPIPE_BOTH inline float tanh_f32(float x) {
  const float a = x < 0 ? -x : x;
  const float z = x * x;
  float p = -5.70498872745e-3F;
  p = p * z + 2.06390887954e-2F;
  p = p * z - 5.37397155531e-2F;
  p = p * z + 1.33314422036e-1F;
  p = p * z - 3.33332819422e-1F;
  const float near = x + x * z * p;
  const float e = exp_f32(-2.0F * a);
  const float size = (1.0F - e) / (1.0F + e);
  const float far = x < 0 ? -size : size;
  return a < 0.625F ? near : far;
}

struct Normal {
  float density, distribution;  // phi(x), Phi(x)
};
/// Abramowitz and Stegun 7.1.26 for erf (absolute error below 1.5e-7), arranged without cancellation for x < 0.
GPIPE_BOTH inline Normal normal_f32(float x) {
  const float e = exp_f32(-0.5F * x * x);
  const float a = (x < 0 ? -x : x) * 0.70710678F;
  const float t = 1.0F / (1.0F + 0.3275911F * a);
  float p = 1.061405429F;
  p = p * t - 1.453152027F;
  p = p * t + 1.421413741F;
  p = p * t - 0.284496736F;
  p = p * t + 0.254829592F;
  const float tail = 0.5F * p * t * e;
  return {0.398942280F * e, x < 0 ? tail : 1.0F - tail};
}

}  // namespace gpipe::device
