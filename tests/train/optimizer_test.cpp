// Optimizers and learning-rate rules against numbers that others computed.
#include "core/train/optimizer.h"

#include "app/yaml_tree.h"
#include "core/device/backend.h"
#include "core/train/rate.h"
#include "tests/support/paths.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <fstream>

using namespace gpipe;

namespace {

tensor::TensorView view(std::vector<float>& values) {
  return {reinterpret_cast<std::byte*>(values.data()), {static_cast<int64_t>(values.size())}, tensor::DType::f32};
}

std::unique_ptr<train::Optimizer> optimizer_of(const std::string& yaml) {
  base::Problems problems;
  auto made = train::make_optimizer(app::parse_yaml(yaml, "optimizer"), "train.optimizer", problems);
  problems.throw_if_any();
  return made;
}

std::unique_ptr<train::Rate> rate_of(const std::string& yaml) {
  base::Problems problems;
  auto made = train::make_rate(app::parse_yaml(yaml, "rate"), "train.schedule", problems);
  problems.throw_if_any();
  return made;
}

}  // namespace

TEST_CASE("every optimizer takes the steps that torch.optim, or TensorFlow's formula, takes") {
  std::ifstream file(test::source_dir() / "tests/reference/optimizers.json");
  const auto reference = nlohmann::json::parse(file);
  const auto backend = device::open_backend("cpu", {});
  std::vector<std::string> seen;
  for (const auto& entry : reference["cases"]) {
    const auto name = entry["optimizer"].get<std::string>();
    CAPTURE(name);
    seen.push_back(name.substr(0, name.find(':')));
    const auto optimizer = optimizer_of(name);
    auto weights = reference["start"].get<std::vector<float>>();
    std::vector<std::vector<float>> slots;
    for (size_t slot = 0; slot < optimizer->slots().size(); ++slot) slots.emplace_back(weights.size(), optimizer->initial(slot));
    std::vector<tensor::TensorView> slot_views;
    for (auto& slot : slots) slot_views.push_back(view(slot));
    for (size_t step = 0; step < reference["gradients"].size(); ++step) {
      auto gradient = reference["gradients"][step].get<std::vector<float>>();
      const device::ParameterUpdate what{optimizer->rule(static_cast<int64_t>(step), reference["learning_rate"], true),
                                         view(weights), view(gradient), slot_views};
      backend->update({&what, 1});
      for (size_t i = 0; i < weights.size(); ++i)
        CHECK(static_cast<double>(weights[i]) == doctest::Approx(entry["weights"][step][i].get<double>()).epsilon(2e-6));
    }
  }
  for (const auto* type : train::optimizer_types()) {
    CAPTURE(type->name);
    CHECK(std::count(seen.begin(), seen.end(), type->name) > 0);
  }
}

TEST_CASE("weight decay leaves out what does not decay") {
  for (const char* name :
       {"sgd: {weight_decay: 0.5}", "adam: {weight_decay: 0.5}", "adamw: {weight_decay: 0.5}", "rmsprop: {weight_decay: 0.5}"}) {
    CAPTURE(name);
    const auto rule = optimizer_of(name)->rule(0, 0.1, false);
    std::visit([](const auto& r) { CHECK(r.common.l2 + r.common.decoupled == 0.0F); }, rule);
    const auto decayed = optimizer_of(name)->rule(0, 0.1, true);
    std::visit([](const auto& r) { CHECK(r.common.l2 + r.common.decoupled == 0.5F); }, decayed);
  }
}

TEST_CASE("an optimizer's settings out of range are refused with the range") {
  for (const char* bad : {"sgd: {momentum: 1.0}", "sgd: {weight_decay: -0.1}", "adam: {epsilon: 0.0}", "adam: {beta2: 1.0}",
                          "rmsprop: {epsilon: 0.0}", "sgd: {nesterov: true, momentum: 0.0}", "sgdd", "adam: {beta: 0.9}"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(optimizer_of(bad), base::ConfigError);
  }
}

TEST_CASE("learning-rate rules give the values worked out by hand") {
  const auto at = [](const char* rule, int64_t step, int64_t warmup = 0, int64_t total = 100, int64_t per_epoch = 10) {
    return train::learning_rate_at(*rate_of(rule), 2.0, warmup, step, total, per_epoch);
  };
  CHECK(at("constant", 77) == 2.0);
  CHECK(at("constant", 0, 4) == 0.5);
  CHECK(at("constant", 3, 4) == 2.0);
  CHECK(at("cosine", 0) == 2.0);
  CHECK(at("cosine", 50) == doctest::Approx(1.0));
  CHECK(at("cosine", 100) == doctest::Approx(0.0));
  CHECK(at("cosine: {end: 0.1}", 100) == doctest::Approx(0.2));
  CHECK(at("cosine", 60, 20) == doctest::Approx(1.0));  // half of what the warm-up leaves
  CHECK(at("step: {every_epochs: 3, factor: 0.5}", 29) == 2.0);
  CHECK(at("step: {every_epochs: 3, factor: 0.5}", 30) == 1.0);
  CHECK(at("step: {every_epochs: 3, factor: 0.5}", 60) == 0.5);
  CHECK(at("exponential: {factor: 0.5, every_epochs: 2}", 19) == 2.0);
  CHECK(at("exponential: {factor: 0.5, every_epochs: 2}", 20) == 1.0);
  CHECK(at("exponential: {factor: 0.5, every_epochs: 2, staircase: false}", 10) == doctest::Approx(2.0 * std::sqrt(0.5)));
  CHECK(at("exponential: {factor: 0.1, every_epochs: 0.1, floor: 0.25}", 99) == 0.5);
  CHECK(at("polynomial", 25) == doctest::Approx(1.5));
  CHECK(at("polynomial: {power: 2, end: 0.5}", 50) == doctest::Approx(2.0 * (0.5 + 0.5 * 0.25)));
}
