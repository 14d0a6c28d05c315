// Processes whose GPUs send by NCCL: the same bits as on one GPU.
#include "tests/pipeline/processes.h"

#include "tests/pipeline_cuda/on_gpus.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace gpipe;
using test::Rematerialize;

TEST_CASE("the same bits in two to four processes with a GPU each, for every schedule") {
  const test::SmallRun pictures{test::k_residual_network, {7, 6, 3}};
  test::SmallRun tokens{test::k_token_network, {11}};
  tokens.classes = 9;
  tokens.tokens = true;
  for (const test::SmallRun& run : {pictures, tokens}) {
    emulated::reset({.delay_us = 0});
    const test::RunBits one = test::run_steps(run, test::on_gpus(1, 1, 4, Rematerialize::none, "gpipe"), 3);
    test::check_clean();
    uint64_t seed = 1;
    for (const auto& schedule : pipeline::schedule_types())
      for (const int processes : {2, 4}) {
        if (processes * std::max<int>(schedule.chunks, 1) > 8) continue;
        CAPTURE(fmt::format("{} in {} processes", schedule.name, processes));
        emulated::reset({.devices = processes, .seed = seed++, .delay_us = 5, .nccl_timeout_s = 100});
        if (processes > device::count_devices("cuda")) continue;
        const auto o = test::on_gpus(processes, processes, 4, Rematerialize::full, schedule.name);
        CHECK(test::in_processes(run, o, processes) == one);
        test::check_clean();
      }
  }
}
