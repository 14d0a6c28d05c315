// Learning-rate rules: what the configured rate is multiplied by at a step. Pure functions; warm-up is common to all.
//
// Adding one: a file in core/train with `const RateType& NAME_rate()` and a line in core/train/rates.def.
#pragma once

#include "core/base/fields.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace gpipe::train {

/// Where the run stands. Steps count from 0 and leave the warm-up out: 0 is the first step at the full rate.
struct RatePoint {
  double step = 0;
  double total_steps = 1;
  double steps_per_epoch = 1;
};

class Rate {
 public:
  Rate() = default;
  Rate(const Rate&) = delete;
  Rate& operator=(const Rate&) = delete;
  virtual ~Rate() = default;
  virtual double factor(const RatePoint& at) const = 0;
};

struct RateType {
  std::string name;
  std::string summary;
  std::unique_ptr<Rate> (*make)(const base::Tree& arguments, const std::string& path, base::Problems& problems);
  base::FieldTable (*fields)();
};

/// The row of a rule that is made from a configuration struct alone: `R(const Config&)`.
template <class R, class Config, const base::FieldSet<Config>& (*fields)()>
RateType rate_type(std::string summary) {
  return {fields().name(), std::move(summary),
          [](const base::Tree& arguments, const std::string& path, base::Problems& problems) -> std::unique_ptr<Rate> {
            Config config;
            fields().read(arguments, path, config, problems);
            return std::make_unique<R>(config);
          },
          [] { return fields().table(); }};
}

const std::vector<const RateType*>& rate_types();
/// A choice from the list; null means constant.
std::unique_ptr<Rate> make_rate(const base::Tree& choice, const std::string& path, base::Problems& problems);

/// The learning rate of `step`: base * (step + 1) / warmup_steps during warm-up, then base times the rule's factor, the rule
/// running over the steps that remain after the warm-up.
double learning_rate_at(const Rate& rate, double base, int64_t warmup_steps, int64_t step, int64_t total_steps,
                        int64_t steps_per_epoch);

}  // namespace gpipe::train
