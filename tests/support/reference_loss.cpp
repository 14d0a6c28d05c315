// Losses: a row of the output is [sum of the sample's losses, how many are right]; dy weighs the losses.
#include "tests/support/reference.h"

#include <algorithm>
#include <cmath>

namespace gpipe::test {
namespace {

class CrossEntropyReference final : public Reference {
 public:
  CrossEntropyReference(size_t classes, double smoothing) : classes_(classes), smoothing_(smoothing) {}

  Numbers forward(const ReferenceCall& call) const override {
    const size_t positions = call.inputs[1].size() / static_cast<size_t>(call.samples);
    Numbers y(2 * static_cast<size_t>(call.samples));
    for (size_t n = 0; n < call.inputs[1].size(); ++n) {
      if (target(call, n) < 0) continue;
      const Numbers p = probabilities(call, n);
      const Numbers q = wanted(call, n);
      const auto best = std::max_element(p.begin(), p.end()) - p.begin();
      for (size_t c = 0; c < classes_; ++c) y[2 * (n / positions)] -= q[c] * std::log(p[c]);
      y[2 * (n / positions) + 1] += best == target(call, n) ? 1 : 0;
    }
    return y;
  }
  ReferenceGradients backward(const ReferenceCall& call, const Numbers& dy) const override {
    const size_t positions = call.inputs[1].size() / static_cast<size_t>(call.samples);
    ReferenceGradients d{{Numbers(call.inputs[0].size()), Numbers(call.inputs[1].size())}, {}};
    for (size_t n = 0; n < call.inputs[1].size(); ++n) {
      if (target(call, n) < 0) continue;
      const Numbers p = probabilities(call, n), q = wanted(call, n);
      for (size_t c = 0; c < classes_; ++c) d.inputs[0][n * classes_ + c] = dy[2 * (n / positions)] * (p[c] - q[c]);
    }
    return d;
  }

 private:
  static int64_t target(const ReferenceCall& call, size_t n) { return std::lround(call.inputs[1][n]); }
  Numbers probabilities(const ReferenceCall& call, size_t n) const {
    Numbers p;
    double sum = 0;
    for (size_t c = 0; c < classes_; ++c) sum += std::exp(call.inputs[0][n * classes_ + c]);
    for (size_t c = 0; c < classes_; ++c) p.push_back(std::exp(call.inputs[0][n * classes_ + c]) / sum);
    return p;
  }
  Numbers wanted(const ReferenceCall& call, size_t n) const {
    Numbers q(classes_, smoothing_ / static_cast<double>(classes_));
    q[static_cast<size_t>(target(call, n))] += 1 - smoothing_;
    return q;
  }

  size_t classes_;
  double smoothing_;
};

class MseReference final : public Reference {
 public:
  Numbers forward(const ReferenceCall& call) const override {
    const size_t width = call.inputs[0].size() / static_cast<size_t>(call.samples);
    Numbers y(2 * static_cast<size_t>(call.samples));
    for (size_t i = 0; i < call.inputs[0].size(); ++i)
      y[2 * (i / width)] += std::pow(call.inputs[0][i] - call.inputs[1][i], 2) / static_cast<double>(width);
    return y;
  }
  ReferenceGradients backward(const ReferenceCall& call, const Numbers& dy) const override {
    const size_t width = call.inputs[0].size() / static_cast<size_t>(call.samples);
    ReferenceGradients d{{Numbers(), Numbers()}, {}};
    for (size_t i = 0; i < call.inputs[0].size(); ++i) {
      const double slope = 2 * dy[2 * (i / width)] * (call.inputs[0][i] - call.inputs[1][i]) / static_cast<double>(width);
      d.inputs[0].push_back(slope);
      d.inputs[1].push_back(-slope);
    }
    return d;
  }
};

}  // namespace

std::unique_ptr<Reference> make_loss_reference(const std::string& type, const Arguments& a, const std::vector<Shape>& inputs) {
  if (type == "cross_entropy")
    return std::make_unique<CrossEntropyReference>(static_cast<size_t>(inputs[0].back()), a.number("label_smoothing", 0));
  if (type == "mse") return std::make_unique<MseReference>();
  return nullptr;
}

}  // namespace gpipe::test
