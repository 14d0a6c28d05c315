// The memory that is planned against the memory that GPUs say is in use. On real GPUs: with nobody else on them.
#include "core/pipeline/gpu_reserve.h"
#include "tests/pipeline_cuda/on_gpus.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace gpipe;

namespace {

using pipeline::Rematerialize;

const test::SmallRun k_pictures{test::k_residual_network, {7, 6, 3}};

/// Arenas of 50 MiB and more a stage, beside which a page of the driver is little.
const test::SmallRun k_wide{
    R"([{conv2d: {out_channels: 8, kernel_size: 3}}, relu, flatten, {linear: {out_features: 4096}}, relu, {linear: {out_features: 2048}},
        relu, {linear: {out_features: 2048}}, relu, {linear: {out_features: 2048}}, relu, {linear: {out_features: 4}}])",
    {20, 20, 3}};

int64_t used_on(int gpus) {
  int64_t sum = 0;
  for (int gpu = 0; gpu < gpus; ++gpu) sum += static_cast<int64_t>(emulated::used_bytes(gpu));
  return sum;
}

/// By how much one allocation may show as more or less than it is.
int64_t granule() { return static_cast<int64_t>(emulated::allocation_granule()); }

/// What two steps and two evaluations take on the GPUs beside the arenas, from before anything of them is there.
int64_t beside_arenas(const test::SmallRun& run, const pipeline::PipelineOptions& options, int gpus) {
  const int64_t before = used_on(gpus);
  const graph::Network network = test::network_of(run);
  const auto plan = pipeline::make_plan(network, {options, run.batch_size, 1, {}});
  pipeline::Engine engine(*plan);
  const std::vector<device::Update> rules = test::start_sgd(engine);
  test::MadeBatch batch(run, 0);
  const auto work = [&] {
    engine.train(batch.view(1), rules, 0);
    engine.evaluate(batch.view(1));
    return used_on(gpus);
  };
  const int64_t after = work();
  CHECK(work() == after);  // nothing is allocated any more
  return after - before - static_cast<int64_t>(plan->arena_bytes());
}

}  // namespace

TEST_CASE("arenas take of GPUs what was planned, and give it back") {
  for (const int gpus : {1, 3}) {
    emulated::reset({.devices = gpus, .delay_us = 0});
    if (gpus > 1 && gpus > device::count_devices("cuda")) continue;  // of real ones
    CAPTURE(gpus);
    const auto network = test::network_of(k_wide);
    const auto plan = pipeline::make_plan(network, {test::on_gpus(gpus, 3, 4, Rematerialize::full, "gpipe"), 8, 1, {}});
    const auto planned = static_cast<int64_t>(plan->arena_bytes());
    REQUIRE(planned > 150 << 20);
    const auto slack = static_cast<int64_t>(plan->stages.size()) * granule();
    pipeline::Engine{*plan};  // what the driver loads for it is there from now on
    const int64_t before = used_on(gpus);
    {
      const pipeline::Engine engine(*plan);
      int64_t held = 0;
      for (int stage = 0; stage < 3; ++stage) held += static_cast<int64_t>(engine.arena_bytes(stage));
      CHECK(held == planned);
      CHECK(used_on(gpus) - before >= planned - slack);
      CHECK(used_on(gpus) - before <= planned + slack);
    }
    CHECK(used_on(gpus) == before);
  }
  test::check_clean();
}

TEST_CASE("what a run takes of GPUs beside its arenas is within what a plan leaves for it") {
  for (const bool pictures : {true, false})
    for (const int partitions : {1, 2, 4})
      for (const int gpus : {1, 2}) {
        if (gpus > partitions) continue;
        emulated::reset({.devices = gpus, .delay_us = 0, .peers = false});
        if (gpus > 1 && gpus > device::count_devices("cuda")) continue;  // of real ones
        CAPTURE(fmt::format("{} K={} GPUs={}", pictures ? "pictures" : "tokens", partitions, gpus));
        const test::SmallRun run = pictures ? k_pictures : test::small_tokens();
        const auto options = test::on_gpus(gpus, partitions, 4, Rematerialize::full, "1f1b");
        const int64_t devices = partitions * pipeline::k_reserve_of_device;
        CHECK(beside_arenas(run, options, gpus) <= devices + gpus * pipeline::k_reserve_of_gpu);
        emulated::reset({.devices = gpus, .delay_us = 0, .peers = false});
        // Real GPUs have loaded libraries and kernels now. cuBLAS works in 32 MiB for each of the pipeline's devices that has
        // something for it.
        const int64_t again = beside_arenas(run, options, gpus);
        CHECK(again <= devices);
        CHECK(again >= (int64_t{32} << 20) - 2 * partitions * granule());
        test::check_clean();
      }
}
