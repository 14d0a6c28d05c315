#include "core/train/optimizer.h"

#include "core/base/choice.h"

namespace gpipe::train {

#define GPIPE_OPTIMIZER(name) const OptimizerType& name##_optimizer();
#include "core/train/optimizers.def"
#undef GPIPE_OPTIMIZER

const std::vector<const OptimizerType*>& optimizer_types() {
  static const std::vector<const OptimizerType*> types{
#define GPIPE_OPTIMIZER(name) &name##_optimizer(),
#include "core/train/optimizers.def"
#undef GPIPE_OPTIMIZER
  };
  return types;
}

std::unique_ptr<Optimizer> make_optimizer(const base::Tree& choice, const std::string& path, base::Problems& problems) {
  std::vector<std::string> known;
  for (const OptimizerType* type : optimizer_types()) known.push_back(type->name);
  const base::Tree tree = choice.is_null() ? base::Tree::scalar(known.front()) : choice;
  const auto read = base::read_choice(tree, path, "optimizer", known, problems);
  if (!read) return nullptr;
  for (const OptimizerType* type : optimizer_types())
    if (type->name == read->name) return type->make(read->arguments, path + "." + read->name, problems);
  return nullptr;
}

}  // namespace gpipe::train
