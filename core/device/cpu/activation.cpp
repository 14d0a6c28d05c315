#include "core/device/functors/activation.h"

#include "core/device/cpu/ops.h"
#include "core/device/cpu/skeletons.h"

namespace gpipe::device::cpu {
namespace {

template <class F>
class ElementActivation final : public ActivationOp {
 public:
  ElementActivation(F f, const Team& team) : f_(f), team_(team) {}

  bool backward_uses_output() const override { return F::uses_output; }
  void forward(const TensorView& x, const TensorView& y) override {
    each_element(team_.threads, x.elements(), x.f32(), y.f32(), [f = f_](float a) { return f.forward(a); });
  }
  void backward(const TensorView& x_or_y, const TensorView& dy, const TensorView& dx) override {
    each_element(team_.threads, dy.elements(), x_or_y.f32(), dy.f32(), dx.f32(),
                 [f = f_](float kept, float d) { return f.backward(kept, d); });
  }

 private:
  F f_;
  const Team& team_;
};

template <class F>
std::unique_ptr<ActivationOp> make(F f, const Team& team) {
  return std::make_unique<ElementActivation<F>>(f, team);
}

}  // namespace

std::unique_ptr<ActivationOp> make_activation(const ActivationSpec& spec, const Team& team) {
  const float slope = static_cast<float>(spec.slope);
  switch (spec.kind) {
    case ActivationSpec::Kind::relu: return make(Relu{}, team);
    case ActivationSpec::Kind::leaky_relu:
      return slope >= 0 ? make(LeakyRelu{slope}, team) : make(LeakyReluOfInput{{slope}}, team);
    case ActivationSpec::Kind::gelu: return make(Gelu{}, team);
    case ActivationSpec::Kind::gelu_tanh: return make(GeluTanh{}, team);
    case ActivationSpec::Kind::silu: return make(Silu{}, team);
    case ActivationSpec::Kind::sigmoid: return make(Sigmoid{}, team);
    case ActivationSpec::Kind::tanh: return make(Tanh{}, team);
    case ActivationSpec::Kind::clip: return make(Clip{static_cast<float>(spec.low), static_cast<float>(spec.high)}, team);
    case ActivationSpec::Kind::scale: return make(Scale{slope}, team);
  }
  throw base::BugError("unknown activation {}", static_cast<int>(spec.kind));
}

}  // namespace gpipe::device::cpu
