#include "core/train/rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace gpipe::train {
namespace {

struct CosineConfig {
  double end = 0.0;
};

const base::FieldSet<CosineConfig>& fields() {
  static const auto set = [] {
    base::FieldSet<CosineConfig> f{"cosine"};
    f.add("end", &CosineConfig::end).range(0.0, 1.0).help("share of the rate left at the end");
    return f;
  }();
  return set;
}

class Cosine final : public Rate {
 public:
  explicit Cosine(const CosineConfig& config) : config_(config) {}
  double factor(const RatePoint& at) const override {
    const double done = std::min(1.0, at.step / at.total_steps);
    return config_.end + (1.0 - config_.end) * 0.5 * (1.0 + std::cos(std::numbers::pi * done));
  }

 private:
  CosineConfig config_;
};

}  // namespace

const RateType& cosine_rate() {
  static const RateType type = rate_type<Cosine, CosineConfig, fields>(
      "half a cosine down to the end of the run (Loshchilov and Hutter 2017, without restarts)");
  return type;
}

}  // namespace gpipe::train
