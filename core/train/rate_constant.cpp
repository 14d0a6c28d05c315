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
  double factor(const RatePoint& /*at*/) const override { return 1.0; }
};

}  // namespace

const RateType& constant_rate() {
  static const RateType type{
      "constant", "the same rate all the time",
      [](const base::Tree& arguments, const std::string& path, base::Problems& problems) -> std::unique_ptr<Rate> {
        ConstantConfig config;
        fields().read(arguments, path, config, problems);
        return std::make_unique<Constant>();
      },
      [] { return fields().table(); }};
  return type;
}

}  // namespace gpipe::train
