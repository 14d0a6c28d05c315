// Processes whose GPUs send by NCCL: the same bits as on one GPU.
#include "tests/pipeline/processes.h"

#include "tests/pipeline_cuda/on_gpus.h"
#include "tests/support/messages.h"

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

TEST_CASE("the same bits in two processes with two GPUs each, which see each other or not") {
  const test::SmallRun run{test::k_residual_network, {7, 6, 3}};
  emulated::reset({.delay_us = 0});
  const test::RunBits one = test::run_steps(run, test::on_gpus(1, 1, 4, Rematerialize::none, "gpipe"), 3);
  test::check_clean();
  for (const bool peers : {true, false}) {
    CAPTURE(peers);
    emulated::reset({.devices = 4, .delay_us = 5, .peers = peers, .nccl_timeout_s = 100});
    if (device::count_devices("cuda") < 4) continue;
    CHECK(test::in_processes(run, test::on_gpus(4, 4, 4, Rematerialize::full, "1f1b"), 2) == one);
    test::check_clean();
  }
}

TEST_CASE("two processes cannot have one GPU") {
  emulated::reset({.devices = 1, .delay_us = 0});
  const test::SmallRun run{test::k_residual_network, {7, 6, 3}};
  const std::string words = test::message_of(
      [&] { test::in_processes(run, test::on_gpus(1, 2, 4, Rematerialize::full, "1f1b"), 2); }, base::ExitCode::usage);
  CHECK(words.find("processes 0 and 1 have the same GPU") != std::string::npos);
  test::check_clean();
}

TEST_CASE("a process that fails ends those whose GPUs wait for its own, with its error") {
  for (const int failing : {0, 1, 2}) {
    emulated::reset({.devices = 3, .delay_us = 0, .nccl_timeout_s = 1000});
    const test::SmallRun run{test::k_residual_network, {7, 6, 3}};
    const auto network = test::network_of(run);
    const auto body = [&](const std::shared_ptr<device::Peers>& peers) {
      auto o = test::on_gpus(3, 3, 4, Rematerialize::full, "1f1b");
      o.peers = peers;
      const auto plan = pipeline::make_plan(network, {o, run.batch_size, 1, {}});
      pipeline::Engine engine(*plan);
      const std::vector<device::Update> rules = test::start_sgd(engine);
      for (int step = 0; step < 3; ++step) {
        if (step == 2 && peers->rank() == failing) {
          const base::DataError error("process {} has lost its data", failing);
          peers->give_up(error.exit_code(), error.what());  // before its engine goes, as the program does
          throw error;
        }
        test::MadeBatch made(run, step);
        engine.train(made.view(1), rules, 0);
      }
    };
    const std::string words = test::message_of([&] { test::with_peers(3, body); }, base::ExitCode::data);
    CHECK(words == fmt::format("process {} has lost its data", failing));
    test::check_clean();
  }
}
