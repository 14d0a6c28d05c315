// Buckets on GPUs: uploads, slots and sends of a mini-batch have the shapes of its bucket.
#include "tests/pipeline_cuda/on_gpus.h"
#include "tests/support/bucket_run.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace gpipe;
using pipeline::Rematerialize;

TEST_CASE("mini-batches of several buckets give the same bits wherever the stages lie, and nearly those of the CPU") {
  const test::BucketNetworks networks(test::k_token_network);
  emulated::reset({.delay_us = 0});
  const test::BucketBits one = test::run_buckets(networks, test::on_gpus(1, 1, 4, Rematerialize::none, "gpipe"), 5);
  const test::BucketBits on_cpu = test::run_buckets(networks, test::options(1, 4, Rematerialize::none), 5);
  for (size_t i = 0; i < one.numbers.size(); ++i) CHECK(one.numbers[i] == doctest::Approx(on_cpu.numbers[i]).epsilon(1e-3));
  uint64_t seed = 1;
  for (const std::string schedule : {"gpipe", "1f1b", "zb_h1"})
    for (const int partitions : {2, 3})
      for (const int gpus : {1, 2}) {
        const Rematerialize policy = seed % 2 == 0 ? Rematerialize::full : Rematerialize::none;
        CAPTURE(fmt::format("{} K={} GPUs={} seed={}", schedule, partitions, gpus, seed));
        emulated::reset({.devices = gpus, .seed = seed++, .delay_us = 5});
        if (gpus > device::count_devices("cuda")) continue;  // of real ones
        CHECK(test::run_buckets(networks, test::on_gpus(gpus, partitions, 4, policy, schedule), 5) == one);
        test::check_clean();
      }
}
