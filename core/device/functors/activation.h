// Activations of one element, written once for every backend. `forward(x)` gives y; `backward(kept, dy)` gives dx, where
// `kept` is y if uses_output, else x. All are torch.nn.functional's.
#pragma once

#include "core/device/functors/math.h"

namespace gpipe::device {

struct Relu {
  static constexpr bool uses_output = true;
  GPIPE_BOTH float forward(float x) const { return x < 0 ? 0.0F : x; }  // written so that NaN stays
  GPIPE_BOTH float backward(float y, float dy) const { return y <= 0 ? 0.0F : dy; }
};

/// The sign of y is that of x as long as slope >= 0.
struct LeakyRelu {
  static constexpr bool uses_output = true;
  float slope;
  GPIPE_BOTH float forward(float x) const { return x > 0 ? x : x * slope; }
  GPIPE_BOTH float backward(float y, float dy) const { return y > 0 ? dy : dy * slope; }
};

struct LeakyReluOfInput : LeakyRelu {
  static constexpr bool uses_output = false;
};

/// torch.clamp: the gradient passes where low <= x <= high.
struct Clip {
  static constexpr bool uses_output = false;
  float low, high;
  // Written so that NaN stays, and without branches.
  GPIPE_BOTH float forward(float x) const {
    const float above = x < low ? low : x;
    return above > high ? high : above;
  }
  GPIPE_BOTH float backward(float x, float dy) const {
    const float below = x <= high ? dy : 0.0F;
    return x >= low ? below : 0.0F;
  }
};

struct Scale {
  static constexpr bool uses_output = true;
  float factor;
  GPIPE_BOTH float forward(float x) const { return x * factor; }
  GPIPE_BOTH float backward(float, float dy) const { return dy * factor; }
};

struct Sigmoid {
  static constexpr bool uses_output = true;
  GPIPE_BOTH float forward(float x) const { return sigmoid_f32(x); }
  GPIPE_BOTH float backward(float y, float dy) const { return dy * (y * (1.0F - y)); }
};

struct Tanh {
  static constexpr bool uses_output = true;
  GPIPE_BOTH float forward(float x) const { return tanh_f32(x); }
  GPIPE_BOTH float backward(float y, float dy) const { return dy * (1.0F - y * y); }
};

struct Silu {
  static constexpr bool uses_output = false;
  GPIPE_BOTH float forward(float x) const { return x * sigmoid_f32(x); }
  GPIPE_BOTH float backward(float x, float dy) const {
    const float s = sigmoid_f32(x);
    return dy * (s * (1.0F + x * (1.0F - s)));
  }
};

/// x Phi(x), Phi the normal distribution: PyTorch's default.
struct Gelu {
  static constexpr bool uses_output = false;
  GPIPE_BOTH float forward(float x) const { return x * normal_f32(x).distribution; }
  GPIPE_BOTH float backward(float x, float dy) const {
    const Normal n = normal_f32(x);
    return dy * (n.distribution + x * n.density);
  }
};

/// The tanh approximation of Hendrycks and Gimpel 2016 (arXiv 1606.08415).
struct GeluTanh {
  static constexpr bool uses_output = false;
  static constexpr float root = 0.797884561F, cubic = 0.044715F;  // sqrt(2 / pi)
  GPIPE_BOTH float forward(float x) const { return 0.5F * x * (1.0F + tanh_f32(root * (x + cubic * x * x * x))); }
  GPIPE_BOTH float backward(float x, float dy) const {
    const float t = tanh_f32(root * (x + cubic * x * x * x));
    return dy * (0.5F * (1.0F + t) + 0.5F * x * (1.0F - t * t) * root * (1.0F + 3.0F * cubic * x * x));
  }
};

}  // namespace gpipe::device
