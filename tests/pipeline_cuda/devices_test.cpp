// The engine on GPUs: the same bits wherever the stages lie.
#include "tests/pipeline_cuda/on_gpus.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>

using namespace gpipe;

namespace {

using pipeline::Rematerialize;

const test::SmallRun k_pictures{test::k_residual_network, {7, 6, 3}};

/// Weights, slots and running averages.
void check_near(const test::RunBits& found, const test::RunBits& wanted) {
  REQUIRE(found.tensors.size() == wanted.tensors.size());
  for (size_t t = 0; t < wanted.tensors.size(); ++t) {
    REQUIRE(found.tensors[t].size() == wanted.tensors[t].size());
    for (size_t i = 0; i < wanted.tensors[t].size(); ++i)
      CHECK(found.tensors[t][i] == doctest::Approx(wanted.tensors[t][i]).epsilon(0.01).scale(0.1));
  }
}

void check_every_place(const test::SmallRun& run, int nodes) {
  emulated::reset({.delay_us = 0});
  const test::RunBits one = test::run_steps(run, test::on_gpus(1, 1, 4, Rematerialize::none, "gpipe"), 3);
  const test::RunBits on_cpu = test::run_steps(run, test::options(1, 4, Rematerialize::none), 3);
  for (size_t i = 0; i < one.losses.size(); ++i) {
    CHECK(one.losses[i] == doctest::Approx(on_cpu.losses[i]).epsilon(1e-4));
    CHECK(one.norms[i] == doctest::Approx(on_cpu.norms[i]).epsilon(1e-3));
  }
  if (run.optimizer != "adam") check_near(one, on_cpu);  // Adam makes much of the signs of gradients that are hardly any
  uint64_t seed = 1;
  for (const auto& schedule : pipeline::schedule_types())
    for (const int partitions : {1, 2, 4, 8})
      for (const int gpus : {1, 2, 8}) {
        const int a_device = schedule.chunks > 0 ? schedule.chunks : 2;
        if (partitions * a_device > nodes || gpus > partitions) continue;
        const Rematerialize policy = seed % 2 == 0 ? Rematerialize::full : Rematerialize::none;
        const auto o = test::on_gpus(gpus, partitions, 4, policy, schedule.name);
        CAPTURE(
            fmt::format("{} K={} GPUs={} policy={} seed={}", schedule.name, partitions, gpus, static_cast<int>(policy), seed));
        // Each time with copies or by NCCL, in turn; by NCCL if there is but one more GPU.
        emulated::reset({.devices = gpus, .seed = seed, .delay_us = 5, .peers = gpus > 2 && seed % 4 < 2});
        if (gpus > device::count_devices("cuda")) continue;  // of real ones
        ++seed;
        test::RunBits bits;
        try {
          bits = test::run_steps(run, o, 3);
        } catch (const base::ConfigError&) { continue; }  // no such schedule for these numbers
        CHECK(bits == one);
        test::check_clean();
      }
}

}  // namespace

TEST_CASE("pictures: the same bits for every schedule, number of stages and of GPUs, near the CPU's") {
  check_every_place(k_pictures, 11);
}

TEST_CASE("tokens: the same bits for every schedule, number of stages and of GPUs, near the CPU's") {
  check_every_place(test::small_tokens(), test::network_of(test::small_tokens()).loss_node());
}

TEST_CASE("on one GPU alone: the same bits with 1 to 4 pipeline devices, by every schedule") {
  test::SmallRun run = k_pictures;
  run.batch_size = 12;  // in as many micro-batches, which every schedule takes for each K here
  emulated::reset({.delay_us = 0});
  const test::RunBits one = test::run_steps(run, test::on_gpus(1, 1, 12, Rematerialize::none, "gpipe"), 2);
  uint64_t seed = 1;
  for (const auto& schedule : pipeline::schedule_types())
    for (const int partitions : {1, 2, 3, 4}) {
      const Rematerialize policy = seed % 2 == 0 ? Rematerialize::full : Rematerialize::none;
      CAPTURE(fmt::format("{} K={} policy={} seed={}", schedule.name, partitions, static_cast<int>(policy), seed));
      emulated::reset({.seed = seed, .delay_us = 2});
      CHECK(test::run_steps(run, test::on_gpus(1, partitions, 12, policy, schedule.name), 2) == one);
      test::check_clean();
      ++seed;
    }
}

TEST_CASE("with factors of fewer bits the bits are the same too, however many stages and GPUs, near the CPU's") {
  for (const device::Precision precision : {device::Precision::tf32, device::Precision::bf16, device::Precision::f16})
    for (const bool pictures : {true, false}) {
      CAPTURE(std::string(device::name_of(precision)));
      const test::SmallRun run = pictures ? k_pictures : test::small_tokens();
      const auto narrow = [&](pipeline::PipelineOptions o) {
        o.precision = precision;
        return o;
      };
      emulated::reset({.delay_us = 0});
      const test::RunBits wide = test::run_steps(run, test::on_gpus(1, 1, 4, Rematerialize::none, "gpipe"), 3);
      const test::RunBits one = test::run_steps(run, narrow(test::on_gpus(1, 1, 4, Rematerialize::none, "gpipe")), 3);
      CHECK(one.losses != wide.losses);
      try {
        const test::RunBits on_cpu = test::run_steps(run, narrow(test::options(1, 4, Rematerialize::none)), 3);
        for (size_t i = 0; i < one.losses.size(); ++i) CHECK(one.losses[i] == doctest::Approx(on_cpu.losses[i]).epsilon(0.02));
      } catch (const base::ConfigError&) { REQUIRE(precision == device::Precision::bf16); }
      for (const int partitions : {2, 4}) {
        const int gpus = std::min(partitions, 2);
        emulated::reset({.devices = gpus, .delay_us = 5});
        if (gpus > device::count_devices("cuda")) continue;
        CAPTURE(partitions);
        CHECK(test::run_steps(run, narrow(test::on_gpus(gpus, partitions, 4, Rematerialize::full, "1f1b")), 3) == one);
        test::check_clean();
      }
    }
}
