#include "core/train/averaged.h"

#include <algorithm>
#include <utility>

namespace gpipe::train {
namespace {

class Averaged final : public Optimizer {
 public:
  Averaged(std::unique_ptr<Optimizer> optimizer, double decay) : optimizer_(std::move(optimizer)), decay_(decay) {}

  std::vector<std::string> slots() const override {
    std::vector<std::string> names = optimizer_->slots();
    names.emplace_back("average");
    return names;
  }
  bool averages() const override { return true; }
  float initial(size_t slot) const override { return optimizer_->initial(slot); }
  device::Update rule(int64_t updates, double learning_rate, bool decays) const override {
    device::Update update = optimizer_->rule(updates, learning_rate, decays);
    const auto n = static_cast<double>(updates);
    const double decay = std::min(decay_, (1 + n) / (10 + n));
    std::visit([&](auto& rule) { rule.common.averaging = static_cast<float>(1 - decay); }, update);
    return update;
  }

 private:
  std::unique_ptr<Optimizer> optimizer_;
  double decay_;
};

}  // namespace

std::unique_ptr<Optimizer> averaged(std::unique_ptr<Optimizer> optimizer, double decay) {
  return std::make_unique<Averaged>(std::move(optimizer), decay);
}

}  // namespace gpipe::train
