// A failing task at any place ends the step with that error, its place in the words, and every thread joined.
#include "core/pipeline/verify.h"
#include "tests/support/faulty_layer.h"
#include "tests/support/small_run.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace gpipe;

namespace {

const test::SmallRun k_run{.network = "", .input = {5}, .classes = 4, .batch_size = 6};

std::string network_text(int faulty_stage) {
  std::string text;
  for (int stage = 0; stage < 4; ++stage)
    text += fmt::format("- linear: {{out_features: 6}}\n- {}\n  name: middle{}\n- linear: {{out_features: {}}}\n",
                        stage == faulty_stage ? "faulty: {}" : "tanh: {}", stage, stage == 3 ? 4 : 6);
  return text;
}

/// One step of a plan of four stages with three nodes each; the message of the error that ends it, or "".
std::string run_with(const test::Fault& fault, int stage, bool recompute) {
  const auto network = test::network_with_fault(network_text(stage), k_run.input, k_run.classes, fault);
  pipeline::PipelineOptions options;
  options.partitions = 4;
  options.micro_batches = 3;
  options.rematerialize = recompute ? pipeline::Rematerialize::full : pipeline::Rematerialize::none;
  options.balance =
      base::Tree::list({base::Tree::scalar("3"), base::Tree::scalar("3"), base::Tree::scalar("3"), base::Tree::scalar("3")});
  const auto plan = pipeline::make_plan(network, {options, k_run.batch_size, 0, {}});
  pipeline::Engine engine(*plan);
  base::Problems problems;
  test::initialise(engine, *train::make_optimizer(base::Tree::scalar("sgd"), "", problems), 1);
  test::MadeBatch made(k_run, 7);
  try {
    engine.train(made.view(1), std::vector<device::Update>(engine.parameter_count()), 0);
  } catch (const base::DataError& error) {
    CHECK_THROWS_AS(engine.evaluate(made.view(1)), base::DataError);  // of no more use, and says why
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("the error of any task of any stage is the one that comes out, with stage, node, micro-batch and step") {
  for (int stage = 0; stage < 4; ++stage)
    for (int micro = 0; micro < 3; ++micro)
      for (const char* where : {"forward", "recompute", "backward"}) {
        test::Fault fault;
        fault.micro = micro;
        fault.backward = std::string(where) == "backward";
        fault.recompute = std::string(where) == "recompute";
        const std::string message = run_with(fault, stage, true);
        CHECK(message ==
              fmt::format("step 7, stage {}, node middle{}, micro-batch {}, {}: made to fail", stage, stage, micro, where));
      }
}

TEST_CASE("a stage that fails without recompute ends the step too, and without a fault nothing fails") {
  test::Fault fault;
  fault.micro = 2;
  CHECK(run_with(fault, 1, false).find("stage 1, node middle1, micro-batch 2, forward") != std::string::npos);
  fault.micro = 99;
  CHECK(run_with(fault, 1, false).empty());
  CHECK(run_with(fault, 1, true).empty());
}

TEST_CASE("a loss that is not finite leaves weights, slots and running averages untouched") {
  test::SmallRun run{test::k_residual_network, {7, 6, 3}};
  const auto network = test::network_of(run.network, run.input, run.classes);
  pipeline::PipelineOptions options;
  options.partitions = 2;
  options.micro_batches = 2;
  const auto plan = pipeline::make_plan(network, {options, run.batch_size, 1, {}});
  pipeline::Engine engine(*plan);
  base::Problems problems;
  const auto optimizer = train::make_optimizer(base::Tree::scalar("sgd"), "", problems);
  test::initialise(engine, *optimizer, 1);
  const auto digest = [&] {
    uint64_t sum = 0;
    for (const auto* tensor : engine.tensors()) {
      sum = pipeline::digest(tensor->value.data, tensor->value.bytes(), sum);
      for (const auto& slot : tensor->slots) sum = pipeline::digest(slot.data, slot.bytes(), sum);
    }
    return sum;
  };
  const std::vector<device::Update> rules(engine.parameter_count(), optimizer->rule(0, 0.1, true));
  const uint64_t before = digest();
  test::MadeBatch made(run, 0);
  made.input[5] = std::numeric_limits<float>::quiet_NaN();
  CHECK_FALSE(engine.train(made.view(1), rules, 0).finite);
  CHECK(digest() == before);
  test::MadeBatch good(run, 0);
  CHECK(engine.train(good.view(1), rules, 0).finite);
  CHECK(digest() != before);
}
