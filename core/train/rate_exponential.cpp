#include "core/train/rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace gpipe::train {
namespace {

struct ExponentialConfig {
  double factor = 0.97;
  double every_epochs = 2.4;
  bool staircase = true;
  double floor = 1e-4;
};

const base::FieldSet<ExponentialConfig>& fields() {
  static const auto set = [] {
    base::FieldSet<ExponentialConfig> f{"exponential"};
    f.add("factor", &ExponentialConfig::factor).range(0.0, 1.0).help("what the rate is multiplied by");
    f.add("every_epochs", &ExponentialConfig::every_epochs).at_least(0.0, true).unit("epochs").help("over which time");
    f.add("staircase", &ExponentialConfig::staircase).help("in steps, or smoothly");
    f.add("floor", &ExponentialConfig::floor).range(0.0, 1.0).help("least share of the rate");
    return f;
  }();
  return set;
}

class Exponential final : public Rate {
 public:
  explicit Exponential(const ExponentialConfig& config) : config_(config) {}
  double factor(const RatePoint& at) const override {
    double periods = at.step / at.steps_per_epoch / config_.every_epochs;
    if (config_.staircase) periods = std::floor(periods);
    return std::max(config_.floor, std::pow(config_.factor, periods));
  }

 private:
  ExponentialConfig config_;
};

}  // namespace

const RateType& exponential_rate() {
  static const RateType type =
      rate_type<Exponential, ExponentialConfig, fields>("exponential decay; the defaults are those of GPipe's AmoebaNet");
  return type;
}

}  // namespace gpipe::train
