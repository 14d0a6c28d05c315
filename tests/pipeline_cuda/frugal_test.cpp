// Nothing waits that need not.
#include "tests/pipeline_cuda/on_gpus.h"

#include <doctest/doctest.h>

#include <cuda_runtime_api.h>

using namespace gpipe;

namespace {

using pipeline::Rematerialize;

const test::SmallRun k_pictures{test::k_residual_network, {7, 6, 3}};

}  // namespace

TEST_CASE("a step waits for each of the pipeline's devices once, and an evaluation too") {
  for (const int partitions : {1, 4}) {
    emulated::reset({.devices = 2, .delay_us = 0});
    const auto network = test::network_of(k_pictures);
    const auto o = test::on_gpus(2, partitions, 4, Rematerialize::full, "1f1b");
    const auto plan = pipeline::make_plan(network, {o, k_pictures.batch_size, 1, {}});
    pipeline::Engine engine(*plan);
    const std::vector<device::Update> rules = test::start_sgd(engine);
    test::MadeBatch made(k_pictures, 0);
    engine.train(made.view(1), rules, 0);
    const int64_t before = emulated::host_waits();
    engine.train(made.view(1), rules, 0);
    const int64_t of_step = emulated::host_waits() - before;
    engine.evaluate(made.view(1));
    const int64_t of_evaluation = emulated::host_waits() - before - of_step;
    CHECK(of_step <= 2 * partitions);  // its two queues
    CHECK(of_evaluation <= 2 * partitions);
  }
  test::check_clean();
}

TEST_CASE("a step starts as many calls for many samples as for few, and two for the sums of squares of all gradients") {
  std::vector<int64_t> products, kernels;
  for (const int64_t samples : {8, 40}) {
    emulated::reset({.devices = 1, .delay_us = 0});
    test::SmallRun run{test::k_token_network, {7}, 9, samples};
    run.tokens = true;
    const auto network = test::network_of(run);
    const auto plan = pipeline::make_plan(network, {test::on_gpus(1, 1, 2, Rematerialize::full, "gpipe"), samples, 1, {}});
    pipeline::Engine engine(*plan);
    const std::vector<device::Update> rules = test::start_sgd(engine);
    test::MadeBatch made(run, 0);
    engine.train(made.view(1), rules, 0);
    auto before = emulated::coverage();
    emulated::fail_at("sum of squares", 3, cudaErrorInvalidValue);
    engine.train(made.view(1), rules, 0);
    emulated::clear_failures();
    auto after = emulated::coverage();
    products.push_back(after["cublasGemmBatchedEx"] - before["cublasGemmBatchedEx"]);
    kernels.push_back(after["gpipe_emulated_launch"] - before["gpipe_emulated_launch"]);
  }
  test::check_clean();
  CHECK(products[0] > 0);
  CHECK(products[1] == products[0]);
  CHECK(kernels[1] == kernels[0]);
}
