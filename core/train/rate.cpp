#include "core/train/rate.h"

#include "core/base/choice.h"

#include <algorithm>

namespace gpipe::train {

#define GPIPE_RATE(name) const RateType& name##_rate();
#include "core/train/rates.def"
#undef GPIPE_RATE

const std::vector<const RateType*>& rate_types() {
  static const std::vector<const RateType*> types{
#define GPIPE_RATE(name) &name##_rate(),
#include "core/train/rates.def"
#undef GPIPE_RATE
  };
  return types;
}

std::unique_ptr<Rate> make_rate(const base::Tree& choice, const std::string& path, base::Problems& problems) {
  std::vector<std::string> known;
  for (const RateType* type : rate_types()) known.push_back(type->name);
  const base::Tree tree = choice.is_null() ? base::Tree::scalar(known.front()) : choice;
  const auto read = base::read_choice(tree, path, "learning-rate rule", known, problems);
  if (!read) return nullptr;
  for (const RateType* type : rate_types())
    if (type->name == read->name) return type->make(read->arguments, path + "." + read->name, problems);
  return nullptr;
}

double learning_rate_at(const Rate& rate, double base, int64_t warmup_steps, int64_t step, int64_t total_steps,
                        int64_t steps_per_epoch) {
  if (step < warmup_steps) return base * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  RatePoint at;
  at.step = static_cast<double>(step - warmup_steps);
  at.total_steps = static_cast<double>(std::max<int64_t>(1, total_steps - warmup_steps));
  at.steps_per_epoch = static_cast<double>(std::max<int64_t>(1, steps_per_epoch));
  return base * rate.factor(at);
}

}  // namespace gpipe::train
