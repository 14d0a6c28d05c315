// What goes wrong on a device ends the run with an error that says where; nothing hangs, nothing is left behind.
#include "core/base/error.h"
#include "tests/emulated_cuda/emulated.h"
#include "tests/pipeline/exactness.h"
#include "tests/support/small_run.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cuda_runtime_api.h>
#include <nccl.h>

using namespace gpipe;
using emulated::Failure;

namespace {

const test::SmallRun k_run{test::k_residual_network, {7, 6, 3}};

/// Three steps of two stages on two GPUs, with a fault set when the first step is done; the error's words, or "".
std::string run_with(const std::string& call, int64_t n, int code, int device, Failure failure, base::ExitCode* exit,
                     bool peers = true) {
  emulated::reset({.devices = 2, .delay_us = 0, .peers = peers, .nccl_timeout_s = 1000});
  const auto network = test::network_of(k_run);
  auto o = test::options(2, 4, pipeline::Rematerialize::full, "1f1b");
  o.device = "cuda";
  std::string words;
  {
    const auto plan = pipeline::make_plan(network, {o, k_run.batch_size, 1, {}});
    pipeline::Engine engine(*plan);
    const std::vector<device::Update> rules = test::start_sgd(engine);
    try {
      for (int step = 0; step < 3; ++step) {
        test::MadeBatch made(k_run, step);
        engine.train(made.view(1), rules, 0);
        if (step == 0) emulated::fail_at(call, n, code, device, failure);
      }
    } catch (const base::Error& error) {
      words = error.what();
      *exit = error.exit_code();
    }
  }
  emulated::clear_failures();
  emulated::violations();  // what a broken device leaves behind is not the program's fault
  emulated::reset();
  return words;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a kernel that cannot be launched names step, stage, node and status") {
  base::ExitCode exit{};
  const std::string words = run_with("gpipe_emulated_launch", 20, cudaErrorLaunchOutOfResources, 1, Failure::once, &exit);
  CAPTURE(words);
  CHECK(exit == base::ExitCode::device);
  CHECK(contains(words, "step 1"));
  CHECK(contains(words, "stage 1"));
  CHECK(contains(words, "node "));
  CHECK(contains(words, "cudaErrorLaunchOutOfResources"));
}

TEST_CASE("a device that breaks while it works ends the run with its status and its stage") {
  for (const int device : {0, 1}) {
    base::ExitCode exit{};
    const std::string words =
        run_with("gpipe_emulated_launch", 30, cudaErrorIllegalAddress, device, Failure::asynchronous, &exit);
    CAPTURE(words);
    CHECK(exit == base::ExitCode::device);
    CHECK(contains(words, "stage "));  // its own, or the one whose copy to it fails first
    CHECK(contains(words, "cudaErrorIllegalAddress"));
  }
}

TEST_CASE("every call of a step may fail, at any time: the error comes out, no thread hangs") {
  for (const std::string call : {"cudaMemcpyAsync", "cudaEventRecord", "cudaStreamWaitEvent", "cudaMemcpyPeerAsync"})
    for (const Failure failure : {Failure::once, Failure::sticky, Failure::lost})
      for (const int64_t n : {1, 2, 3, 4, 5, 9}) {
        base::ExitCode exit{};
        const std::string words = run_with(call, n, cudaErrorUnknown, -1, failure, &exit);
        CAPTURE(fmt::format("{} {} {}: {}", call, static_cast<int>(failure), n, words));
        CHECK(exit == base::ExitCode::device);
        CHECK(contains(words, "cudaErrorUnknown"));
        CHECK(contains(words, "stage "));
      }
}

TEST_CASE("whatever of NCCL's calls fails between GPUs that do not see each other: the error comes out, no thread hangs") {
  for (const std::string call : {"ncclSend", "ncclRecv", "ncclGroupEnd", "ncclCommGetAsyncError"})
    for (const int64_t n : {1, 2, 3, 9}) {
      base::ExitCode exit{};
      const std::string words = run_with(call, n, ncclSystemError, -1, Failure::once, &exit, false);
      CAPTURE(fmt::format("{} {}: {}", call, n, words));
      CHECK(exit == base::ExitCode::device);
      CHECK(contains(words, "unhandled system error"));
      CHECK(contains(words, "stage "));
    }
}

TEST_CASE("a GPU that breaks while another waits for it by NCCL ends the run") {
  for (const Failure failure : {Failure::sticky, Failure::asynchronous, Failure::lost})
    for (const int device : {0, 1})
      for (const int64_t n : {1, 20, 45}) {
        base::ExitCode exit{};
        const std::string words = run_with("gpipe_emulated_launch", n, cudaErrorIllegalAddress, device, failure, &exit, false);
        CAPTURE(fmt::format("{} {} {}: {}", static_cast<int>(failure), device, n, words));
        CHECK(exit == base::ExitCode::device);
        CHECK(contains(words, "cudaErrorIllegalAddress"));
        CHECK(contains(words, "stage "));
      }
}

TEST_CASE("a device without memory for its arena says so, with the stage") {
  emulated::reset({.devices = 1, .memory_bytes = size_t{120} << 20, .delay_us = 0});
  const auto network = test::network_of("[{linear: {out_features: 12288}}, {linear: {out_features: 4}}]", {1024}, 4);
  auto o = test::options(1, 1, pipeline::Rematerialize::none);
  o.device = "cuda";
  const auto plan = pipeline::make_plan(network, {o, 8, 1, {}});
  try {
    const pipeline::Engine engine(*plan);
    FAIL("an arena of 144 MiB in 120 MiB");
  } catch (const base::MemoryError& error) {
    CHECK(contains(error.what(), "stage 0"));
    CHECK(contains(error.what(), "cuda:0 is out of memory"));
  }
  emulated::violations();
}
