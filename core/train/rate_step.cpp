#include "core/train/rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace gpipe::train {
namespace {

struct StepConfig {
  double every_epochs = 30;
  double factor = 0.1;
};

const base::FieldSet<StepConfig>& fields() {
  static const auto set = [] {
    base::FieldSet<StepConfig> f{"step"};
    f.add("every_epochs", &StepConfig::every_epochs).at_least(0.0, true).unit("epochs").help("how long the rate stays the same");
    f.add("factor", &StepConfig::factor).range(0.0, 1.0).help("what it is then multiplied by");
    return f;
  }();
  return set;
}

class Step final : public Rate {
 public:
  explicit Step(const StepConfig& config) : config_(config) {}
  double factor(const RatePoint& at) const override {
    const double epochs = at.step / at.steps_per_epoch;
    return std::pow(config_.factor, std::floor(epochs / config_.every_epochs));
  }

 private:
  StepConfig config_;
};

}  // namespace

const RateType& step_rate() {
  static const RateType type = rate_type<Step, StepConfig, fields>("times a factor every so many epochs");
  return type;
}

}  // namespace gpipe::train
