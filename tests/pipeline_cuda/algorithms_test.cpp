// A run whose algorithms were measured: the same bits wherever the stages lie, as long as the choices are the same.
#include "core/device/algorithms.h"

#include "tests/pipeline_cuda/on_gpus.h"
#include "tests/support/small_run.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace gpipe;
using device::Algorithms;
using pipeline::Rematerialize;

namespace {

const test::SmallRun k_pictures{test::k_residual_network, {7, 6, 3}};

test::RunBits run_on(int gpus, const std::string& schedule, std::shared_ptr<Algorithms> algorithms) {
  auto o = test::on_gpus(gpus, gpus, 4, gpus == 2 ? Rematerialize::full : Rematerialize::none, schedule);
  o.algorithms = std::move(algorithms);
  return test::run_steps(k_pictures, o, 3);
}

}  // namespace

TEST_CASE("measured choices give the same bits for every number of stages: in one run, and in others that are given them") {
  emulated::reset({.delay_us = 0});
  const test::RunBits suggested = run_on(1, "gpipe", nullptr);
  int differ = 0;
  for (const uint64_t seed : {1, 2, 3}) {
    CAPTURE(seed);
    emulated::reset({.devices = 4, .seed = seed, .delay_us = 5});
    const auto measured = std::make_shared<Algorithms>(Algorithms::Rule::measured);
    const test::RunBits one = run_on(1, "gpipe", measured);
    const Algorithms::Choices choices = measured->choices();
    CHECK(choices.size() == 3 * 3 - 1);  // of three convolutions; nobody wants the gradient of the network's input
    for (const int gpus : {2, 4})
      for (const std::string schedule : {"gpipe", "1f1b"}) {
        CAPTURE(fmt::format("{} K={}", schedule, gpus));
        CHECK(run_on(gpus, schedule, measured) == one);
        CHECK(run_on(gpus, schedule, std::make_shared<Algorithms>(Algorithms::Rule::suggested, true, choices)) == one);
      }
    CHECK(measured->choices() == choices);
    differ += one == suggested ? 0 : 1;
    test::check_clean();
  }
  CHECK(differ > 0);  // else the choice would not show in the bits
}
