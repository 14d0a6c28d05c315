#include "core/train/optimizer.h"

#include <fmt/format.h>

namespace gpipe::train {
namespace {

struct SgdConfig {
  double momentum = 0.9;
  double dampening = 0.0;
  bool nesterov = false;
  double weight_decay = 0.0;
};

const base::FieldSet<SgdConfig>& fields() {
  static const auto set = [] {
    base::FieldSet<SgdConfig> f{"sgd"};
    f.add("momentum", &SgdConfig::momentum).range(0.0, 1.0, true).help("share of the last update kept");
    f.add("dampening", &SgdConfig::dampening).range(0.0, 1.0).help("share of the gradient kept out of the momentum buffer");
    f.add("nesterov", &SgdConfig::nesterov).help("look one momentum step ahead");
    f.add("weight_decay", &SgdConfig::weight_decay).at_least(0.0).help("L2 penalty, added to the gradient times the weight");
    return f;
  }();
  return set;
}

/// torch.optim.SGD's update.
class Sgd final : public Optimizer {
 public:
  explicit Sgd(const SgdConfig& config) : config_(config) {}
  std::vector<std::string> slots() const override {
    return config_.momentum > 0 ? std::vector<std::string>{"momentum_buffer"} : std::vector<std::string>{};
  }
  device::Update rule(int64_t updates, double learning_rate, bool decays) const override {
    device::UpdateCommon common;
    common.learning_rate = static_cast<float>(learning_rate);
    common.l2 = decays ? static_cast<float>(config_.weight_decay) : 0.0F;
    if (config_.momentum <= 0) return device::SgdUpdate{common};
    device::MomentumUpdate update;
    update.common = common;
    update.momentum = static_cast<float>(config_.momentum);
    update.dampening = static_cast<float>(config_.dampening);
    update.nesterov = config_.nesterov;
    update.first_step = updates == 0;
    return update;
  }

 private:
  SgdConfig config_;
};

}  // namespace

const OptimizerType& sgd_optimizer() {
  static const OptimizerType type{
      "sgd", "stochastic gradient descent with momentum, as torch.optim.SGD",
      [](const base::Tree& arguments, const std::string& path, base::Problems& problems) -> std::unique_ptr<Optimizer> {
        SgdConfig config;
        fields().read(arguments, path, config, problems);
        if (config.nesterov && (config.momentum <= 0 || config.dampening != 0))
          problems.add(arguments.where(), path + ".nesterov", "nesterov wants a momentum above 0 and no dampening");
        return std::make_unique<Sgd>(config);
      },
      [] { return fields().table(); }};
  return type;
}

}  // namespace gpipe::train
