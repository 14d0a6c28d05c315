#include "core/train/rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace gpipe::train {
namespace {

struct PolynomialConfig {
  double power = 1.0;
  double end = 0.0;
};

const base::FieldSet<PolynomialConfig>& fields() {
  static const auto set = [] {
    base::FieldSet<PolynomialConfig> f{"polynomial"};
    f.add("power", &PolynomialConfig::power).at_least(0.0, true).help("1 is a straight line");
    f.add("end", &PolynomialConfig::end).range(0.0, 1.0).help("share of the rate left at the end");
    return f;
  }();
  return set;
}

class Polynomial final : public Rate {
 public:
  explicit Polynomial(const PolynomialConfig& config) : config_(config) {}
  double factor(const RatePoint& at) const override {
    const double left = 1.0 - std::min(1.0, at.step / at.total_steps);
    return config_.end + (1.0 - config_.end) * std::pow(left, config_.power);
  }

 private:
  PolynomialConfig config_;
};

}  // namespace

const RateType& polynomial_rate() {
  static const RateType type = rate_type<Polynomial, PolynomialConfig, fields>("a power of the share of the run that is left");
  return type;
}

}  // namespace gpipe::train
