// Optimizers: hyperparameters in, one device::Update a parameter and step out. They hold no state: slots live in the stages,
// the number of updates so far is the trainer's.
//
// Adding one: a file in core/train with `const OptimizerType& NAME_optimizer()`, a line in core/train/optimizers.def, and
// its rule in core/device/functors/update.h when none there fits.
#pragma once

#include "core/base/fields.h"
#include "core/device/functors/update.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace gpipe::train {

class Optimizer {
 public:
  Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  virtual ~Optimizer() = default;

  /// Names of the state tensors a parameter has, PyTorch's where it has them ("momentum_buffer"); checkpoints use them.
  virtual std::vector<std::string> slots() const = 0;
  /// Is the last slot the average of the parameter's values (core/train/averaged.h)? It starts as the parameter itself.
  virtual bool averages() const { return false; }
  /// What a slot holds before the first update.
  virtual float initial(size_t /*slot*/) const { return 0.0F; }
  /// The update number `updates` (from 0) at `learning_rate`; `decays`: whether weight decay applies to the parameter.
  virtual device::Update rule(int64_t updates, double learning_rate, bool decays) const = 0;
};

/// One row of the list of optimizers.
struct OptimizerType {
  std::string name;
  std::string summary;
  std::unique_ptr<Optimizer> (*make)(const base::Tree& arguments, const std::string& path, base::Problems& problems);
  base::FieldTable (*fields)();
};

const std::vector<const OptimizerType*>& optimizer_types();
/// A choice from the list; null means sgd with momentum 0.9. Null is returned when `problems` got an entry.
std::unique_ptr<Optimizer> make_optimizer(const base::Tree& choice, const std::string& path, base::Problems& problems);

}  // namespace gpipe::train
