#include "tests/support/gradient_check.h"

#include "core/base/rng.h"
#include "layers/layer_types.h"
#include "tests/support/central_difference.h"
#include "tests/support/node_run.h"
#include "tests/support/reference.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <map>
#include <utility>

namespace gpipe::test {
namespace {

// The loss is a sum of f32 numbers of about 1, off by some 1e-7 each. Over a step of 1/32 that shows in a slope as up to 2e-5 of
// the tensor's largest, on a CPU and on emulated GPUs; the tolerance leaves 50 times as much to rounding, for algorithms that
// add in other orders, and as much again to bends over the step. A wrong factor, sum or index is off by far more.
constexpr double k_step = 0x1p-5, k_rounding = 1e-3, k_bend = 1e-3;

Numbers to_numbers(const Floats& values) { return Numbers(values.begin(), values.end()); }

double weighted_sum(const Numbers& a, const Numbers& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// One case, on a device and by its reference.
class GradientCheck {
 public:
  GradientCheck(const OpCase& c, const std::string& device, uint64_t elements)
      : case_(c),
        elements_(elements),
        data_(make_data(c)),
        found_(run_node(c, data_, {.device = device})),
        loss_(make_loss(c, data_, {.device = device})),
        reference_(make_reference(c.type, c.tree(), c.inputs)) {
    for (size_t micro = 0; micro < c.micro_batches.size(); ++micro) {
      ReferenceCall& call = calls_.emplace_back();
      call.samples = c.micro_batches[micro];
      call.pass = pass_of(c, micro);
      for (const Floats& values : data_.inputs[micro]) call.inputs.push_back(to_numbers(values));
      for (const Floats& values : data_.parameters) call.parameters.push_back(to_numbers(values));
      dy_.push_back(to_numbers(data_.dy[micro]));
      wanted_.push_back(reference_->backward(call, dy_.back()));
    }
  }

  void run() {
    for (size_t micro = 0; micro < calls_.size(); ++micro)
      for (size_t i = 0; i < case_.inputs.size(); ++i) {
        const Floats& dx = found_.micros[micro].dx[i];
        if (dx.empty()) continue;  // integers
        check(fmt::format("dx {} of micro-batch {}", i, micro), dx, data_.inputs[micro][i],
              [&](size_t e) { return bend(micro, calls_[micro].inputs[i][e], wanted_[micro].inputs[i][e]); });
      }
    for (size_t p = 0; p < data_.parameters.size(); ++p)
      check(fmt::format("gradient {}", p), found_.gradients[p], data_.parameters[p], [&](size_t e) {
        double sum = 0;
        for (size_t micro = 0; micro < calls_.size(); ++micro)
          sum += bend(micro, calls_[micro].parameters[p][e], wanted_[micro].parameters[p][e]);
        return sum;
      });
  }

  int64_t chosen = 0, compared = 0;  // elements

 private:
  /// By how much a difference over the step misses the slope, in double: by much at a kink or a sharp bend, and for the vector
  /// of padding, which is read and by definition not trained.
  double bend(size_t micro, double& value, double slope) {
    const auto loss = [&] { return weighted_sum(reference_->forward(calls_[micro]), dy_[micro]); };
    return central_difference(value, k_step, loss) - slope;
  }

  template <class Bend>
  void check(const std::string& what, const Floats& gradient, Floats& values, const Bend& bend) {
    const base::Philox random(1, base::Purpose::test, tensors_++);
    double largest = 1;
    for (const float x : gradient) largest = std::max(largest, std::abs(static_cast<double>(x)));
    for (uint64_t i = 0; i < elements_; ++i) {
      const size_t e = random.below(i, static_cast<uint32_t>(values.size()));
      ++chosen;
      if (std::abs(bend(e)) > k_bend * largest) continue;
      ++compared;
      const double found = static_cast<double>(gradient[e]), wanted = central_difference(values[e], k_step, loss_);
      if (!(std::abs(found - wanted) <= (k_bend + k_rounding) * largest))
        FAIL_CHECK(what << "[" << e << "]: " << found << ", central difference " << wanted);
    }
  }

  const OpCase& case_;
  uint64_t elements_;  // of each tensor
  NodeData data_;
  NodeResult found_;
  std::function<double()> loss_;
  std::unique_ptr<Reference> reference_;
  std::vector<ReferenceCall> calls_;  // by micro-batch, as the next two
  std::vector<Numbers> dy_;
  std::vector<ReferenceGradients> wanted_;
  uint64_t tensors_ = 0;
};

int64_t numbers_of(const OpCase& c) {
  int64_t sum = 0;
  for (const Shape& shape : c.inputs) sum += shape.elements() * c.micro_batches[0];
  return sum;
}

/// For each list of arguments the largest case that is not called large.
std::vector<const OpCase*> cases_of(const std::string& type) {
  std::map<std::pair<std::string, size_t>, const OpCase*> largest;
  for (const OpCase& c : op_cases()) {
    if (c.type != type || c.large) continue;
    const OpCase*& chosen = largest[{c.arguments, c.inputs.size()}];
    if (chosen == nullptr || numbers_of(c) > numbers_of(*chosen)) chosen = &c;
  }
  std::vector<const OpCase*> cases;
  for (const auto& [key, c] : largest) cases.push_back(c);
  return cases;
}

}  // namespace

void check_gradients(const std::string& device) {
  for (const graph::LayerType* type : layers::layer_types()) {
    CAPTURE(type->name);
    const std::vector<const OpCase*> cases = cases_of(type->name);
    REQUIRE_FALSE(cases.empty());
    int64_t chosen = 0, compared = 0;
    for (const OpCase* c : cases) {
      CAPTURE(c->text());
      GradientCheck check(*c, device, 2 + 24 / cases.size());
      check.run();
      chosen += check.chosen;
      compared += check.compared;
    }
    CHECK(compared >= chosen - chosen / 8);
  }
}

}  // namespace gpipe::test
