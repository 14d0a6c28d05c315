#include "core/train/optimizer.h"

namespace gpipe::train {
namespace {

struct RmspropConfig {
  double decay = 0.9;
  double momentum = 0.0;
  double epsilon = 1e-10;
  double weight_decay = 0.0;
};

const base::FieldSet<RmspropConfig>& fields() {
  static const auto set = [] {
    base::FieldSet<RmspropConfig> f{"rmsprop"};
    f.add("decay", &RmspropConfig::decay).range(0.0, 1.0, true).help("decay of the mean of squared gradients");
    f.add("momentum", &RmspropConfig::momentum).range(0.0, 1.0, true).help("share of the last update kept");
    f.add("epsilon", &RmspropConfig::epsilon).at_least(0.0, true).help("added to the mean square, inside the root");
    f.add("weight_decay", &RmspropConfig::weight_decay).at_least(0.0).help("L2 penalty, added to the gradient times the weight");
    return f;
  }();
  return set;
}

/// TensorFlow's training op ApplyRMSProp, with which GPipe's AmoebaNet was trained: the mean square starts at 1, epsilon is
/// inside the root, and the momentum is taken of the scaled step (learning rate included).
class Rmsprop final : public Optimizer {
 public:
  explicit Rmsprop(const RmspropConfig& config) : config_(config) {}
  std::vector<std::string> slots() const override { return {"mean_square", "momentum"}; }
  float initial(size_t slot) const override { return slot == 0 ? 1.0F : 0.0F; }
  device::Update rule(int64_t /*updates*/, double learning_rate, bool decays) const override {
    device::RmspropUpdate update;
    update.common.learning_rate = static_cast<float>(learning_rate);
    update.common.l2 = decays ? static_cast<float>(config_.weight_decay) : 0.0F;
    update.decay = static_cast<float>(config_.decay);
    update.momentum = static_cast<float>(config_.momentum);
    update.epsilon = static_cast<float>(config_.epsilon);
    return update;
  }

 private:
  RmspropConfig config_;
};

}  // namespace

const OptimizerType& rmsprop_optimizer() {
  static const OptimizerType type{
      "rmsprop", "RMSProp in TensorFlow's form (epsilon inside the root), as GPipe's AmoebaNet used",
      [](const base::Tree& arguments, const std::string& path, base::Problems& problems) -> std::unique_ptr<Optimizer> {
        RmspropConfig config;
        fields().read(arguments, path, config, problems);
        return std::make_unique<Rmsprop>(config);
      },
      [] { return fields().table(); }};
  return type;
}

}  // namespace gpipe::train
