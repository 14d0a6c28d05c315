// Optimizer updates of one element, written once for every backend. A launcher calls `rule(weight, gradient, slots...)`
// for each element of a parameter; `gradient` arrives as it was accumulated, each rule scales it first.
//
// Sources: sgd, adam, adamw as torch.optim defines them; rmsprop as TensorFlow's training op does (epsilon inside the
// root, momentum on the scaled step), the form that GPipe's AmoebaNet was trained with.
#pragma once

#include <cmath>
#include <variant>

#ifdef __CUDACC__
#define GPIPE_BOTH __host__ __device__
#else
#define GPIPE_BOTH
#endif

namespace gpipe::device {

/// What all rules share. `gradient_scale` carries clipping; `l2` is added to the gradient times the weight; `decoupled`
/// shrinks the weight by learning_rate * decoupled before the update (AdamW).
struct UpdateCommon {
  float learning_rate = 0;
  float gradient_scale = 1;
  float l2 = 0;
  float decoupled = 0;
  float averaging = 0;  // above 0: the last slot, beyond the rule's own, becomes average + averaging * (weight - average)

  GPIPE_BOTH float prepare(float& weight, float gradient) const {
    const float scaled = gradient * gradient_scale + l2 * weight;
    weight -= learning_rate * decoupled * weight;
    return scaled;
  }
};

struct SgdUpdate {
  static constexpr int slots = 0;
  UpdateCommon common;

  GPIPE_BOTH void operator()(float& weight, float gradient, float&, float&) const {
    const float g = common.prepare(weight, gradient);
    weight -= common.learning_rate * g;
  }
};

struct MomentumUpdate {
  static constexpr int slots = 1;  // momentum buffer
  UpdateCommon common;
  float momentum = 0;
  float dampening = 0;
  bool nesterov = false;
  bool first_step = false;  // PyTorch: the buffer starts as the gradient itself

  GPIPE_BOTH void operator()(float& weight, float gradient, float& buffer, float&) const {
    const float g = common.prepare(weight, gradient);
    buffer = first_step ? g : momentum * buffer + (1 - dampening) * g;
    weight -= common.learning_rate * (nesterov ? g + momentum * buffer : buffer);
  }
};

struct AdamUpdate {
  static constexpr int slots = 2;  // first and second moment
  UpdateCommon common;
  float beta1 = 0.9F, beta2 = 0.999F, epsilon = 1e-8F;
  float correction1 = 1, root_correction2 = 1;  // 1 - beta1^t, sqrt(1 - beta2^t)

  GPIPE_BOTH void operator()(float& weight, float gradient, float& first, float& second) const {
    const float g = common.prepare(weight, gradient);
    first = first + (1 - beta1) * (g - first);
    second = beta2 * second + (1 - beta2) * g * g;
    const float root = std::sqrt(second) / root_correction2 + epsilon;
    weight -= common.learning_rate / correction1 * (first / root);
  }
};

struct RmspropUpdate {
  static constexpr int slots = 2;  // mean square, momentum
  UpdateCommon common;
  float decay = 0.9F, momentum = 0, epsilon = 1e-10F;

  GPIPE_BOTH void operator()(float& weight, float gradient, float& mean_square, float& velocity) const {
    const float g = common.prepare(weight, gradient);
    mean_square = mean_square + (1 - decay) * (g * g - mean_square);
    velocity = momentum * velocity + common.learning_rate * g / std::sqrt(mean_square + epsilon);
    weight -= velocity;
  }
};

/// The list of update rules; a backend visits it.
using Update = std::variant<SgdUpdate, MomentumUpdate, AdamUpdate, RmspropUpdate>;

}  // namespace gpipe::device
