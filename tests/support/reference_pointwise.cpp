// Activations, softmax, scales, the three kinds of dropout, and what only adds or joins numbers.
#include "core/base/rng.h"
#include "tests/support/reference.h"

#include <cmath>
#include <functional>
#include <numbers>

namespace gpipe::test {
namespace {

using Function = std::function<double(double)>;

class ElementReference final : public Reference {
 public:
  ElementReference(Function value, Function slope) : value_(std::move(value)), slope_(std::move(slope)) {}

  Numbers forward(const ReferenceCall& call) const override {
    Numbers y;
    for (double x : call.inputs[0]) y.push_back(value_(x));
    return y;
  }
  ReferenceGradients backward(const ReferenceCall& call, const Numbers& dy) const override {
    ReferenceGradients d{{Numbers(dy.size())}, {}};
    for (size_t i = 0; i < dy.size(); ++i) d.inputs[0][i] = dy[i] * slope_(call.inputs[0][i]);
    return d;
  }

 private:
  Function value_, slope_;
};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double normal_density(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi); }
double normal_distribution(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }

std::unique_ptr<Reference> activation(const std::string& type, const Arguments& a) {
  const auto make = [](Function value, Function slope) {
    return std::make_unique<ElementReference>(std::move(value), std::move(slope));
  };
  if (type == "relu") return make([](double x) { return std::max(x, 0.0); }, [](double x) { return x > 0 ? 1.0 : 0.0; });
  if (type == "leaky_relu") {
    const double s = a.number("negative_slope", 0.01);
    return make([s](double x) { return x > 0 ? x : s * x; }, [s](double x) { return x > 0 ? 1.0 : s; });
  }
  if (type == "sigmoid") return make(sigmoid, [](double x) { return sigmoid(x) * (1 - sigmoid(x)); });
  if (type == "tanh")
    return make([](double x) { return std::tanh(x); }, [](double x) { return 1 - std::tanh(x) * std::tanh(x); });
  if (type == "silu")
    return make([](double x) { return x * sigmoid(x); }, [](double x) { return sigmoid(x) + x * sigmoid(x) * (1 - sigmoid(x)); });
  if (type == "clip") {
    const double low = a.has("magnitude") ? -a.number("magnitude", 0) : a.number("min", -1e30);
    const double high = a.has("magnitude") ? a.number("magnitude", 0) : a.number("max", 1e30);
    return make([=](double x) { return std::min(std::max(x, low), high); },
                [=](double x) { return x >= low && x <= high ? 1.0 : 0.0; });
  }
  if (type == "scale" && a.has("factor")) {
    const double factor = a.number("factor", 1);
    return make([=](double x) { return factor * x; }, [=](double) { return factor; });
  }
  if (type == "gelu" && a.word("approximate", "none") == "none")
    return make([](double x) { return x * normal_distribution(x); },
                [](double x) { return normal_distribution(x) + x * normal_density(x); });
  if (type == "gelu") {
    const auto inner = [](double x) { return std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x); };
    return make([inner](double x) { return 0.5 * x * (1 + std::tanh(inner(x))); },
                [inner](double x) {
                  const double t = std::tanh(inner(x));
                  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * x * x);
                });
  }
  return nullptr;
}

// Element i of a sample follows draw i % period: period 1 drops whole samples, the channels whole channels.
class DropoutReference final : public Reference {
 public:
  DropoutReference(double p, bool ramp, size_t period) : p_(p), ramp_(ramp), period_(period) {}

  Numbers forward(const ReferenceCall& call) const override { return masked(call, call.inputs[0]); }
  ReferenceGradients backward(const ReferenceCall& call, const Numbers& dy) const override { return {{masked(call, dy)}, {}}; }

 private:
  Numbers masked(const ReferenceCall& call, const Numbers& from) const {
    const size_t width = from.size() / static_cast<size_t>(call.samples);
    Numbers to(from.size());
    for (size_t i = 0; i < from.size(); ++i) {
      const uint64_t sample = static_cast<uint64_t>(call.pass.first_sample) + i / width;
      const base::Philox draw(call.pass.seed, base::Purpose::dropout, static_cast<uint64_t>(call.pass.step),
                              static_cast<uint64_t>(call.pass.node) << 32 | sample);
      const double p = ramp_ ? p_ * call.pass.progress : p_;
      to[i] = draw.uniform(i % width % period_) >= static_cast<float>(p) ? from[i] / (1 - p) : 0;
    }
    return to;
  }

  double p_;
  bool ramp_;
  size_t period_;
};

class SoftmaxReference final : public Reference {
 public:
  explicit SoftmaxReference(const Shape& input) : width_(static_cast<size_t>(input.back())) {}

  Numbers forward(const ReferenceCall& call) const override {
    Numbers y = call.inputs[0];
    for (size_t row = 0; row < y.size(); row += width_) {
      double sum = 0;
      for (size_t i = row; i < row + width_; ++i) sum += std::exp(y[i]);
      for (size_t i = row; i < row + width_; ++i) y[i] = std::exp(y[i]) / sum;
    }
    return y;
  }
  ReferenceGradients backward(const ReferenceCall& call, const Numbers& dy) const override {
    const Numbers y = forward(call);
    ReferenceGradients d{{Numbers(dy.size())}, {}};
    for (size_t i = 0; i < y.size(); ++i)
      for (size_t j = i / width_ * width_; j < (i / width_ + 1) * width_; ++j)
        d.inputs[0][i] += dy[j] * y[j] * ((i == j ? 1 : 0) - y[i]);
    return d;
  }

 private:
  size_t width_;
};

class LayerScaleReference final : public Reference {
 public:
  Numbers forward(const ReferenceCall& call) const override { return scaled(call, call.inputs[0]); }
  ReferenceGradients backward(const ReferenceCall& call, const Numbers& dy) const override {
    Numbers slope(call.parameters[0].size());
    for (size_t i = 0; i < dy.size(); ++i) slope[i % slope.size()] += dy[i] * call.inputs[0][i];
    return {{scaled(call, dy)}, {slope}};
  }

 private:
  static Numbers scaled(const ReferenceCall& call, Numbers values) {
    for (size_t i = 0; i < values.size(); ++i) values[i] *= call.parameters[0][i % call.parameters[0].size()];
    return values;
  }
};

class AddReference final : public Reference {
 public:
  Numbers forward(const ReferenceCall& call) const override {
    Numbers y(call.inputs[0].size());
    for (const Numbers& input : call.inputs)
      for (size_t i = 0; i < y.size(); ++i) y[i] += input[i];
    return y;
  }
  ReferenceGradients backward(const ReferenceCall& call, const Numbers& dy) const override {
    return {std::vector<Numbers>(call.inputs.size(), dy), {}};
  }
};

class ConcatReference final : public Reference {
 public:
  explicit ConcatReference(const std::vector<Shape>& inputs) {
    for (const Shape& input : inputs) widths_.push_back(static_cast<size_t>(input.back()));
    for (size_t width : widths_) all_ += width;
  }

  Numbers forward(const ReferenceCall& call) const override {
    Numbers y;
    const size_t rows = call.inputs[0].size() / widths_[0];
    for (size_t r = 0; r < rows; ++r)
      for (size_t k = 0; k < widths_.size(); ++k)
        for (size_t i = 0; i < widths_[k]; ++i) y.push_back(call.inputs[k][r * widths_[k] + i]);
    return y;
  }
  ReferenceGradients backward(const ReferenceCall&, const Numbers& dy) const override {
    ReferenceGradients d{std::vector<Numbers>(widths_.size()), {}};
    size_t next = 0;
    while (next < dy.size())
      for (size_t k = 0; k < widths_.size(); ++k)
        for (size_t i = 0; i < widths_[k]; ++i) d.inputs[k].push_back(dy[next++]);
    return d;
  }

 private:
  std::vector<size_t> widths_;
  size_t all_ = 0;
};

}  // namespace

std::unique_ptr<Reference> make_pointwise_reference(const std::string& type, const Arguments& a,
                                                    const std::vector<Shape>& inputs) {
  const size_t whole = static_cast<size_t>(inputs[0].elements());
  if (type == "dropout") return std::make_unique<DropoutReference>(a.number("p", 0.5), false, whole);
  if (type == "dropout2d")
    return std::make_unique<DropoutReference>(a.number("p", 0.5), false, static_cast<size_t>(inputs[0].back()));
  if (type == "drop_path") return std::make_unique<DropoutReference>(1 - a.number("keep", 1), a.truth("ramp", false), 1);
  if (type == "softmax") return std::make_unique<SoftmaxReference>(inputs[0]);
  if (type == "scale" && a.has("learned")) return std::make_unique<LayerScaleReference>();
  if (type == "add") return std::make_unique<AddReference>();
  if (type == "concat") return std::make_unique<ConcatReference>(inputs);
  if (type == "flatten" || type == "reshape")
    return std::make_unique<ElementReference>([](double x) { return x; }, [](double) { return 1.0; });
  return activation(type, a);
}

}  // namespace gpipe::test
