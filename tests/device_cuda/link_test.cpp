// Emulated GPUs that do not see each other's memory, and what ends the work of groups.
#include "core/base/error.h"
#include "core/device/cuda/event.h"
#include "tests/device_cuda/members.h"
#include "tests/emulated_cuda/launch.h"
#include "tests/support/device_block.h"
#include "tests/support/messages.h"

#include <doctest/doctest.h>

#include <cuda_runtime_api.h>
#include <future>
#include <nccl.h>

using namespace gpipe;
using namespace gpipe::test;
using device::Comm;

namespace {

constexpr int64_t k_count = 3000;

/// Device 0 sends x to y of device 1, whose copy comes back to z.
struct ThereAndBack {
  std::unique_ptr<device::Backend> one, two;
  DeviceBlock x, y, z;
  explicit ThereAndBack(const device::BackendOptions& options = {})
      : one(gpu(0, options)), two(gpu(1, options)), x(*one, {k_count}), y(*two, {k_count}), z(*one, {k_count}) {}
  void fill(const std::vector<float>& values) const { write_bytes(*one, values.data(), x.view().bytes(), x.view().data); }
  void send() {
    const auto sent = one->make_event();
    one->send(x, *two, y.view().data, *sent);
    two->wait(*sent);
    two->add(y, y, y);
    two->synchronize();
    one->receive(*two, y, z);
    one->synchronize();
  }
};

}  // namespace

TEST_CASE("GPUs that do not see each other exchange by NCCL, those that do by copies") {
  for (const bool peers : {false, true}) {
    const Machine machine({.devices = 2, .delay_us = 100, .peers = peers});
    const auto before = emulated::coverage();
    ThereAndBack pair;
    pair.one->connect(*pair.two);
    for (uint64_t round = 0; round < 5; ++round) {
      const std::vector<float> values = noise(round, k_count);
      pair.fill(values);
      pair.send();
      std::vector<float> twice = values;
      for (float& value : twice) value *= 2;
      CHECK(pair.z.values() == twice);
    }
    auto after = emulated::coverage();
    CHECK((after["ncclSend"] - before.at("ncclSend") > 0) == !peers);
    CHECK((after["cudaMemcpyPeerAsync"] - before.at("cudaMemcpyPeerAsync") > 0) == peers);
  }
}

TEST_CASE("a member that waits alone ends with exit code 7 and says for how long it waited") {
  const Machine machine({.devices = 2, .delay_us = 0, .nccl_timeout_s = 100});
  const auto backend = gpu(0, {.transfer_timeout = 0.2});
  check_contains(message_of([&] { backend->join(backend->make_group(), 0, 2); }, base::ExitCode::peer),
                 {"cuda:0", "joining the group", "longer than 0.2 s", "rank 0 of 2"});
  const auto late = [](device::Backend& with, Comm& comm) {
    const DeviceBlock x(with, {k_count}, noise(1, k_count));
    const auto done = with.make_event();
    const Comm::Message message{x, 1, false};
    if (comm.rank() == 0) comm.exchange({&message, 1}, *done);  // nobody receives it
    with.wait(*done);
    with.synchronize();
  };
  check_contains(message_of([&] { with_members(2, {.transfer_timeout = 0.2}, late); }, base::ExitCode::peer),
                 {"cuda:0", "a group of 2 GPUs", "did not end within 0.2 s"});
}

TEST_CASE("work that waits for its own device's queue is not late, however long that takes") {
  const Machine machine({.devices = 2, .delay_us = 0, .peers = false});
  ThereAndBack pair({.transfer_timeout = 0.5});
  pair.fill(noise(1, k_count));
  pair.one->connect(*pair.two);
  const auto looks = [] { return emulated::coverage().at("ncclCommGetAsyncError"); };
  std::promise<void> open;
  cudaStream_t slow = nullptr;
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  REQUIRE(cudaStreamCreateWithFlags(&slow, cudaStreamNonBlocking) == cudaSuccess);
  gpipe_emulated_launch(slow, "gate", [opened = open.get_future().share()] { opened.wait(); });
  const auto passed = pair.one->make_event(), sent = pair.one->make_event();
  REQUIRE(cudaEventRecord(device::cuda::own(*passed), slow) == cudaSuccess);
  pair.one->wait(*passed);
  pair.one->send(pair.x, *pair.two, pair.y.view().data, *sent);
  for (const int64_t from = looks(); looks() < from + 40;) std::this_thread::yield();  // two ranks, ten looks a timeout
  open.set_value();
  pair.one->synchronize();
  REQUIRE(cudaStreamDestroy(slow) == cudaSuccess);
  CHECK(pair.y.values() == noise(1, k_count));
}

TEST_CASE("whatever call of NCCL fails, the error names it, and nothing waits for ever") {
  for (const std::string call :
       {"ncclGetUniqueId", "ncclCommInitRankConfig", "ncclCommGetAsyncError", "ncclGroupEnd", "ncclSend", "ncclRecv"})
    for (const int64_t n : {1, 2}) {
      const Machine machine({.devices = 2, .delay_us = 0, .peers = false});
      CAPTURE(call);
      CAPTURE(n);
      ThereAndBack pair;
      emulated::fail_at(call, n, ncclSystemError);
      std::string words;
      try {
        for (int round = 0; round < 2; ++round) pair.send();
      } catch (const base::DeviceError& error) { words = error.what(); }
      if (call == "ncclGetUniqueId" && n == 2) continue;  // there is but one
      check_contains(words, {"cuda:", "unhandled system error", "/dev/shm"});
      emulated::violations();
    }
}

TEST_CASE("a GPU that breaks while another waits for it ends both, with its status") {
  const Machine machine({.devices = 2, .delay_us = 0, .peers = false, .nccl_timeout_s = 100});
  std::string words;
  try {
    ThereAndBack pair;
    pair.one->connect(*pair.two);
    emulated::fail_at("gpipe_emulated_launch", 1, cudaErrorIllegalAddress, 1, emulated::Failure::asynchronous);
    pair.two->add(pair.y, pair.y, pair.y);
    for (int round = 0; round < 20; ++round) {
      const auto sent = pair.one->make_event();
      pair.one->send(pair.x, *pair.two, pair.y.view().data, *sent);
      pair.one->synchronize();
    }
  } catch (const base::DeviceError& error) { words = error.what(); }
  check_contains(words, {"cuda:1", "cudaErrorIllegalAddress"});
  emulated::clear_failures();
  emulated::violations();
  emulated::reset();  // what a broken device cannot give back
}
