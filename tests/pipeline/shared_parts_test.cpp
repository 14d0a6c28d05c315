// Parameters that several nodes share, and losses beside the main one: right by central differences, and the same bits on every
// partition and schedule.
#include "app/yaml_tree.h"
#include "core/base/error.h"
#include "core/pipeline/verify.h"
#include "core/train/averaged.h"
#include "tests/support/small_run.h"

#include <doctest/doctest.h>

#include <algorithm>

using namespace gpipe;
using pipeline::PipelineOptions;
using pipeline::Rematerialize;

namespace {

// The third use stands in another half of the network than the owner; dropout makes recompute count.
const test::SmallRun k_tied{.network = R"(
- linear: {out_features: 6}
  name: first
- tanh
- linear: {out_features: 6}
  tied: {weight: first.weight}
- dropout: {p: 0.2}
- silu
- linear: {out_features: 6, bias: false}
  tied: {weight: first.weight}
- linear: {out_features: 4}
)",
                            .input = {6}};

const test::SmallRun k_auxiliary{.network = R"(
- linear: {out_features: 5}
- tanh
- auxiliary:
    weight: 0.3
    body:
    - linear: {out_features: 3}
    - silu
    - linear: {out_features: 4}
- linear: {out_features: 6}
- tanh
- auxiliary:
    weight: 0.5
    body:
    - linear: {out_features: 4}
  name: second
- linear: {out_features: 4}
)",
                                 .input = {6},
                                 .auxiliary_losses = 2};

struct Trial {
  explicit Trial(const test::SmallRun& run) : run_(run), network_(test::network_of(run.network, run.input, run.classes)) {
    plan_ = pipeline::make_plan(network_, {{}, run.batch_size, 0, {}});
    engine_ = std::make_unique<pipeline::Engine>(*plan_);
    base::Problems problems;
    const auto optimizer = train::make_optimizer(app::parse_yaml("sgd: {momentum: 0}", "optimizer"), "optimizer", problems);
    test::initialise(*engine_, *optimizer, run.seed);
  }

  /// Loss and weighted auxiliary losses of one mini-batch; the weights stay, the gradients are those of it.
  double loss() {
    test::MadeBatch made(run_, 0);
    const std::vector<device::Update> rules(engine_->parameter_count(), device::SgdUpdate{});
    engine_->pack();
    const pipeline::StepResult result = engine_->train(made.view(run_.seed), rules, 0);
    return result.loss + result.auxiliary_loss;
  }

  pipeline::Engine& engine() { return *engine_; }

 private:
  const test::SmallRun& run_;
  graph::Network network_;
  std::unique_ptr<pipeline::Plan> plan_;
  std::unique_ptr<pipeline::Engine> engine_;
};

void check_slopes(const test::SmallRun& run) {
  Trial trial(run);
  trial.loss();
  std::vector<std::vector<float>> gradients;
  for (const pipeline::StateTensor* tensor : trial.engine().tensors())
    gradients.emplace_back(tensor->gradient.f32(), tensor->gradient.f32() + tensor->gradient.elements());
  for (size_t at = 0; at < gradients.size(); ++at) {
    const pipeline::StateTensor& tensor = *trial.engine().tensors()[at];
    CAPTURE(tensor.name);
    for (size_t i = 0; i < gradients[at].size(); i += 5) {
      float& x = tensor.value.f32()[i];
      const float before = x;
      constexpr float step = 1e-2F;
      x = before + step;
      const double above = trial.loss();
      x = before - step;
      const double below = trial.loss();
      x = before;
      const double slope = (above - below) / (2.0 * static_cast<double>(step));
      CHECK(gradients[at][i] == doctest::Approx(slope).epsilon(0.002).scale(0.02));
    }
  }
}

void check_every_cut(const test::SmallRun& run) {
  PipelineOptions one;
  one.micro_batches = 4;
  const test::RunBits expected = test::run_steps(run, one, 3);
  for (const char* schedule : {"gpipe", "1f1b", "interleaved", "zb_h1", "zb_v"})
    for (const int64_t partitions : {2, 4})
      for (const Rematerialize policy : {Rematerialize::full, Rematerialize::none}) {
        CAPTURE(schedule);
        CAPTURE(partitions);
        PipelineOptions options = one;
        options.schedule = schedule;
        options.partitions =
            schedule == std::string("interleaved") || schedule == std::string("zb_v") ? partitions / 2 : partitions;
        if (schedule == std::string("interleaved")) options.chunks = 2;
        options.rematerialize = policy;
        CHECK(test::run_steps(run, options, 3) == expected);
      }
}

std::string refusal(const std::string& network) {
  try {
    test::network_of(network, {6}, 4);
  } catch (const base::ConfigError& error) { return error.what(); }
  return "";
}

}  // namespace

TEST_CASE("the gradient of a tied parameter is the slope of the loss over all its uses") { check_slopes(k_tied); }

TEST_CASE("auxiliary losses add to the gradient with their weights") { check_slopes(k_auxiliary); }

TEST_CASE("tied parameters give the same bits on every partition and schedule") { check_every_cut(k_tied); }

TEST_CASE("auxiliary losses give the same bits on every partition and schedule") { check_every_cut(k_auxiliary); }

TEST_CASE("a tied parameter is counted, saved and updated once") {
  const auto network = test::network_of(k_tied.network, k_tied.input, k_tied.classes);
  CHECK(network.ties.size() == 2);
  CHECK(network.parameter_count() == 36 + 6 + 6 + 24 + 4);
  Trial trial(k_tied);
  CHECK(trial.engine().parameter_count() == 5);
}

TEST_CASE("an auxiliary head takes no part in evaluation") {
  const auto with = test::run_steps(k_auxiliary, {}, 0);
  test::SmallRun without = k_auxiliary;
  without.auxiliary_losses = 0;
  for (size_t at = without.network.find("- auxiliary"); at != std::string::npos; at = without.network.find("- auxiliary"))
    without.network.erase(at, without.network.find("\n- ", at) + 1 - at);
  // The trunk's layers are counted by type in each list: the same names, so the same first values.
  CHECK(test::run_steps(without, {}, 0).evaluation ==
        std::vector<float>(with.evaluation.begin(), with.evaluation.begin() + 2 * without.batch_size));
}

TEST_CASE("what cannot be tied is refused with what there is") {
  CHECK(refusal("- linear: {out_features: 6}\n- linear: {out_features: 4}\n  tied: {weight: linear_1.weight}\n").find("[6, 6]") !=
        std::string::npos);
  CHECK(refusal("- linear: {out_features: 6}\n- linear: {out_features: 6}\n  tied: {weight: linear_1.wait}\n")
            .find("did you mean 'linear_1.weight'?") != std::string::npos);
  CHECK(refusal("- linear: {out_features: 6}\n- linear: {out_features: 6}\n  tied: {wait: linear_1.weight}\n")
            .find("no parameter 'wait'") != std::string::npos);
}

TEST_CASE("the average of the weights follows its rule, and is what evaluation sees") {
  const graph::Network network = test::network_of(k_tied.network, k_tied.input, k_tied.classes);
  base::Problems problems;
  const auto optimizer =
      train::averaged(train::make_optimizer(app::parse_yaml("sgd: {momentum: 0.9}", "optimizer"), "optimizer", problems), 0.15);
  REQUIRE(optimizer->slots() == std::vector<std::string>{"momentum_buffer", "average"});
  const auto plan = pipeline::make_plan(network, {{}, k_tied.batch_size, 2, {}});
  pipeline::Engine engine(*plan);
  test::initialise(engine, *optimizer, k_tied.seed);
  pipeline::StateTensor& tensor = *engine.tensors().front();
  float* weight = tensor.value.f32();
  float* average = tensor.slots.back().f32();
  *average = *weight;
  auto expected = static_cast<double>(*weight);
  for (int step = 0; step < 3; ++step) {
    test::MadeBatch made(k_tied, step);
    const std::vector<device::Update> rules(engine.parameter_count(), optimizer->rule(step, 0.1, true));
    engine.train(made.view(1), rules, 0);
    const double decay = std::min(0.15, (1.0 + step) / (10.0 + step));
    expected = decay * expected + (1 - decay) * static_cast<double>(*weight);
  }
  CHECK(*average == doctest::Approx(expected).epsilon(1e-5));
  const float trained = *weight, averaged = *average;
  engine.swap_averages();
  CHECK((*weight == averaged && *average == trained));
  engine.swap_averages();
  CHECK((*weight == trained && *average == averaged));
}
