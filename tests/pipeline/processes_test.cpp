// One pipeline in several processes: the same bits as in one, whatever lies where; a failure anywhere ends all.
#include "tests/pipeline/processes.h"

#include "core/base/error.h"
#include "core/pipeline/engine.h"
#include "tests/pipeline/exactness.h"
#include "tests/support/faulty_layer.h"
#include "tests/support/messages.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <array>

using namespace gpipe;
using test::Rematerialize;

namespace {

const test::SmallRun k_pictures{test::k_residual_network, {7, 6, 3}};

test::SmallRun tokens() {
  test::SmallRun run{test::k_token_network, {11}};
  run.classes = 9;
  run.tokens = true;
  run.optimizer = "adam";
  run.learning_rate = 0.01;
  return run;
}

}  // namespace

TEST_CASE("the same bits in every number of processes, for every schedule") {
  for (const test::SmallRun& run : {k_pictures, tokens()}) {
    const test::RunBits one = test::run_steps(run, test::options(1, 4, Rematerialize::none), 3);
    for (const auto& schedule : pipeline::schedule_types())
      for (const int partitions : {2, 4})
        for (const int processes : {2, 3, 4}) {
          const Rematerialize policy = processes % 2 == 0 ? Rematerialize::full : Rematerialize::none;
          const auto o = test::options(partitions, 4, policy, schedule.name);
          CAPTURE(fmt::format("{} K={} processes={}", schedule.name, partitions, processes));
          if (processes > partitions || partitions * std::max<int>(schedule.chunks, 1) > 8) continue;
          CHECK(test::in_processes(run, o, processes) == one);
        }
  }
}

TEST_CASE("ties that cross each other between the stages of two processes are handed on in one order") {
  const test::SmallRun run{.network = R"(
- linear: {out_features: 6}
  name: a
- linear: {out_features: 6}
  name: b
- linear: {out_features: 6}
  name: c
  tied: {weight: b.weight}
- linear: {out_features: 6}
  name: d
  tied: {weight: a.weight}
)",
                           .input = {6},
                           .classes = 6};
  const test::RunBits one = test::run_steps(run, test::options(1, 4, Rematerialize::none), 3);
  auto o = test::options(2, 4, Rematerialize::full, "interleaved");  // stages 0 and 2, 1 and 3
  o.chunks = 2;
  o.balance = base::Tree::list(std::vector<base::Tree>(4, base::Tree::scalar("1")));
  CHECK(test::in_processes(run, o, 2) == one);
}

TEST_CASE("what fails in one process ends all with its error") {
  for (const size_t failing : {0, 1, 2}) {
    std::vector<std::string> stages(3, "{linear: {out_features: 4}}, relu");
    stages[failing] = "{linear: {out_features: 4}}, faulty";
    const test::Fault fault{1, true, false};
    const auto network = test::network_with_fault(fmt::format("[flatten, {}]", fmt::join(stages, ", ")), {2, 2, 1}, 4, fault);
    const auto run = [&](const std::shared_ptr<device::Peers>& peers) {
      pipeline::PipelineOptions mine = test::options(3, 4, Rematerialize::full);
      mine.peers = peers;
      mine.balance = base::Tree::list({base::Tree::scalar("3"), base::Tree::scalar("2"), base::Tree::scalar("2")});
      const auto plan = pipeline::make_plan(network, {mine, 8, 1, {}});
      pipeline::Engine engine(*plan);
      const std::vector<device::Update> rules = test::start_sgd(engine);
      test::MadeBatch made({"", {2, 2, 1}}, 0);
      engine.train(made.view(1), rules, 0);
    };
    const std::string words = test::message_of([&] { test::with_peers(3, run); }, base::ExitCode::data);
    CAPTURE(words);
    CHECK(words.find("made to fail") != std::string::npos);
    CHECK(words.find(fmt::format("stage {}", failing)) != std::string::npos);
  }
}

TEST_CASE("a process that waits for one that never comes ends with exit code 7") {
  const std::string words = test::message_of(
      [] {
        test::with_peers(
            2,
            [](const auto& peers) {
              double one = 1;
              if (peers->rank() == 0) peers->sum({&one, 1});
            },
            0.1);
      },
      base::ExitCode::peer);
  CHECK(words.find("process 0 waited longer than 0.1 s") != std::string::npos);
}

TEST_CASE("sums over processes are the same bits for all, in the order of processes") {
  std::vector<double> found(4);
  test::with_peers(4, [&](const auto& peers) {
    const int rank = peers->rank();
    std::array<double, 2> values{rank == 0 ? 1.0 : 0x1p-53, static_cast<double>(rank)};
    peers->sum(values);
    CHECK(values[1] == 6);
    found[static_cast<size_t>(rank)] = values[0];
    CHECK(peers->any(rank == 2));
    CHECK_FALSE(peers->any(false));
    CHECK(peers->broadcast(fmt::format("from {}", rank)) == "from 0");
  });
  CHECK(found == std::vector<double>(4, ((1.0 + 0x1p-53) + 0x1p-53) + 0x1p-53));
}
