#include "core/train/optimizer.h"

#include <cmath>

namespace gpipe::train {
namespace {

struct AdamConfig {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.0;
};

struct AdamwConfig : AdamConfig {
  AdamwConfig() { weight_decay = 0.01; }
};

template <class Config>
base::FieldSet<Config> make_fields(const std::string& name, const std::string& decay_help) {
  base::FieldSet<Config> f{name};
  f.add("beta1", &Config::beta1).range(0.0, 1.0, true).help("decay of the mean of gradients");
  f.add("beta2", &Config::beta2).range(0.0, 1.0, true).help("decay of the mean of squared gradients");
  f.add("epsilon", &Config::epsilon).at_least(0.0, true).help("added to the root of the mean square");
  f.add("weight_decay", &Config::weight_decay).at_least(0.0).help(decay_help);
  return f;
}

const base::FieldSet<AdamConfig>& adam_fields() {
  static const auto set = make_fields<AdamConfig>("adam", "L2 penalty, added to the gradient times the weight");
  return set;
}

const base::FieldSet<AdamwConfig>& adamw_fields() {
  static const auto set =
      make_fields<AdamwConfig>("adamw", "decoupled: each update shrinks the weight by learning_rate * weight_decay");
  return set;
}

/// torch.optim.Adam and AdamW (Kingma and Ba 2015; Loshchilov and Hutter 2019).
class Adam final : public Optimizer {
 public:
  Adam(const AdamConfig& config, bool decoupled) : config_(config), decoupled_(decoupled) {}
  std::vector<std::string> slots() const override { return {"exp_avg", "exp_avg_sq"}; }
  device::Update rule(int64_t updates, double learning_rate, bool decays) const override {
    const double t = static_cast<double>(updates + 1);
    device::AdamUpdate update;
    update.common.learning_rate = static_cast<float>(learning_rate);
    (decoupled_ ? update.common.decoupled : update.common.l2) = decays ? static_cast<float>(config_.weight_decay) : 0.0F;
    update.beta1 = static_cast<float>(config_.beta1);
    update.beta2 = static_cast<float>(config_.beta2);
    update.epsilon = static_cast<float>(config_.epsilon);
    update.correction1 = static_cast<float>(1.0 - std::pow(config_.beta1, t));
    update.root_correction2 = static_cast<float>(std::sqrt(1.0 - std::pow(config_.beta2, t)));
    return update;
  }

 private:
  AdamConfig config_;
  bool decoupled_;
};

}  // namespace

const OptimizerType& adam_optimizer() {
  static const OptimizerType type{
      "adam", "Adam, as torch.optim.Adam",
      [](const base::Tree& arguments, const std::string& path, base::Problems& problems) -> std::unique_ptr<Optimizer> {
        AdamConfig config;
        adam_fields().read(arguments, path, config, problems);
        return std::make_unique<Adam>(config, false);
      },
      [] { return adam_fields().table(); }};
  return type;
}

const OptimizerType& adamw_optimizer() {
  static const OptimizerType type{
      "adamw", "Adam with decoupled weight decay, as torch.optim.AdamW",
      [](const base::Tree& arguments, const std::string& path, base::Problems& problems) -> std::unique_ptr<Optimizer> {
        AdamwConfig config;
        adamw_fields().read(arguments, path, config, problems);
        return std::make_unique<Adam>(config, true);
      },
      [] { return adamw_fields().table(); }};
  return type;
}

}  // namespace gpipe::train
