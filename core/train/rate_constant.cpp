#include "core/train/rate.h"

namespace gpipe::train {
namespace {

struct ConstantConfig {};

const base::FieldSet<ConstantConfig>& fields() {
  static const base::FieldSet<ConstantConfig> set{"constant"};
  return set;
}

class Constant final : public Rate {
 public:
  explicit Constant(const ConstantConfig& /*config*/) {}
  double factor(const RatePoint& /*at*/) const override { return 1.0; }
};

}  // namespace

const RateType& constant_rate() {
  static const RateType type = rate_type<Constant, ConstantConfig, fields>("the same rate all the time");
  return type;
}

}  // namespace gpipe::train
