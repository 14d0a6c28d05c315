// NCCL: matching, order, groups, reductions, communicators that do not block, deadlocks, aborts.
#include "tests/emulated_cuda/numbers.h"
#include "tests/emulated_cuda/test_support.h"

#include <chrono>
#include <functional>
#include <memory>
#include <nccl.h>
#include <thread>

namespace gpipe::emulated {
namespace {

/// One communicator, stream and a few numbers of memory a device, all in this thread.
struct Ring {
  std::vector<ncclComm_t> comms;
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<std::unique_ptr<Buffer<float>>> memory;
  explicit Ring(int ranks, size_t numbers = 8) : comms(static_cast<size_t>(ranks)) {
    REQUIRE(ncclCommInitAll(comms.data(), ranks, nullptr) == ncclSuccess);
    for (int i = 0; i < ranks; ++i) {
      REQUIRE(cudaSetDevice(i) == cudaSuccess);
      streams.push_back(std::make_unique<Stream>());
      memory.push_back(std::make_unique<Buffer<float>>(numbers));
      memory.back()->upload(std::vector<float>(numbers, static_cast<float>(i)), stream(i));
    }
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
  }
  ~Ring() {
    for (const ncclComm_t comm : comms) {
      if (comm) CHECK(ncclCommDestroy(comm) == ncclSuccess);
    }
  }
  cudaStream_t stream(int rank) const { return *streams[static_cast<size_t>(rank)]; }
  float* data(int rank) const { return memory[static_cast<size_t>(rank)]->data; }
  ncclComm_t comm(int rank) const { return comms[static_cast<size_t>(rank)]; }
  ncclResult_t send(int rank, int to, size_t at, size_t count = 1) {
    return ncclSend(data(rank) + at, count, ncclFloat32, to, comm(rank), stream(rank));
  }
  ncclResult_t receive(int rank, int from, size_t at, size_t count = 1) {
    return ncclRecv(data(rank) + at, count, ncclFloat32, from, comm(rank), stream(rank));
  }
  std::vector<float> values(int rank) const {
    CHECK(cudaSetDevice(rank) == cudaSuccess);
    CHECK(cudaStreamSynchronize(stream(rank)) == cudaSuccess);
    std::vector<float> found = memory[static_cast<size_t>(rank)]->download(stream(rank));
    CHECK(cudaSetDevice(0) == cudaSuccess);
    return found;
  }
  void abort_all() {
    for (ncclComm_t& comm : comms) CHECK(ncclCommAbort(std::exchange(comm, nullptr)) == ncclSuccess);
  }
};

void write(const Ring& ring, int rank, size_t at, float value) {
  CHECK(cudaSetDevice(rank) == cudaSuccess);
  float* to = ring.data(rank) + at;
  gpipe_emulated_launch(ring.stream(rank), "write", [=] { *to = value; });
  CHECK(cudaSetDevice(0) == cudaSuccess);
}

TEST_CASE("sends meet receives of the same pair in order, and wait for the stream's work before") {
  Machine machine({.devices = 2, .seed = 5, .delay_us = 100});
  Ring ring(2);
  for (int i = 0; i < 3; ++i) {
    write(ring, 0, 0, static_cast<float>(10 + i));
    CHECK(ring.send(0, 1, 0) == ncclSuccess);
  }
  for (size_t i = 0; i < 3; ++i) CHECK(ring.receive(1, 0, i) == ncclSuccess);
  const std::vector<float> found = ring.values(1);
  CHECK(std::vector<float>(found.begin(), found.begin() + 3) == std::vector{10.0f, 11.0f, 12.0f});
}

TEST_CASE("a group of crossing sends and receives of one thread cannot deadlock") {
  Machine machine({.devices = 3});
  Ring ring(3);
  REQUIRE(ncclGroupStart() == ncclSuccess);
  for (int i = 0; i < 3; ++i) {
    CHECK(ring.send(i, (i + 1) % 3, 0) == ncclSuccess);
    CHECK(ring.receive(i, (i + 2) % 3, 1) == ncclSuccess);
    CHECK(ring.send(i, i, 0) == ncclSuccess);  // to itself
    CHECK(ring.receive(i, i, 2) == ncclSuccess);
  }
  REQUIRE(ncclGroupEnd() == ncclSuccess);
  for (int i = 0; i < 3; ++i) {
    CHECK(ring.values(i)[1] == static_cast<float>((i + 2) % 3));
    CHECK(ring.values(i)[2] == static_cast<float>(i));
  }
}

TEST_CASE("crossing sends without a group are reported as a deadlock, and an abort ends it") {
  Machine machine({.devices = 2, .delay_us = 0, .nccl_timeout_s = 0.5});
  Ring ring(2);
  CHECK(ring.send(0, 1, 0, 4) == ncclSuccess);
  CHECK(ring.receive(0, 1, 4, 4) == ncclSuccess);
  CHECK(ring.send(1, 0, 0, 4) == ncclSuccess);
  CHECK(ring.receive(1, 0, 4, 4) == ncclSuccess);
  check_violation({"NCCL: deadlock", "rank 0 waits to send 4 f32 to rank 1", "rank 1 waits to send 4 f32 to rank 0"}, 20);
  Event event;
  CHECK(cudaEventRecord(event, ring.stream(0)) == cudaSuccess);
  CHECK(cudaEventQuery(event) == cudaErrorNotReady);
  ring.abort_all();
  CHECK(cudaEventSynchronize(event) == cudaSuccess);
  CHECK(cudaStreamSynchronize(ring.stream(1)) == cudaSuccess);
}

TEST_CASE("a receive that differs from its send in size or type is reported and fails the communicators") {
  for (const bool other_type : {false, true}) {
    Machine machine({.devices = 2});
    Ring ring(2);
    CHECK(ring.send(0, 1, 0, 4) == ncclSuccess);
    CHECK(ncclRecv(ring.data(1), other_type ? 4 : 3, other_type ? ncclInt32 : ncclFloat32, 0, ring.comm(1), ring.stream(1)) ==
          ncclSuccess);
    CHECK(cudaStreamSynchronize(ring.stream(0)) == cudaSuccess);
    CHECK(cudaStreamSynchronize(ring.stream(1)) == cudaSuccess);
    check_violation({"rank 0 sends 4 f32, but rank 1 receives", other_type ? "4 int32" : "3 f32"});
    ncclResult_t error = ncclSuccess;
    CHECK(ncclCommGetAsyncError(ring.comm(1), &error) == ncclSuccess);
    CHECK(error == ncclInternalError);
  }
}

TEST_CASE("all-reduce adds in the order of ranks, in place too") {
  Machine machine({.devices = 3, .delay_us = 50});
  Ring ring(3);
  const float parts[3] = {1.0f, 0x1p-24f, 0x1p-24f};
  for (int i = 0; i < 3; ++i) write(ring, i, 0, parts[i]);
  REQUIRE(ncclGroupStart() == ncclSuccess);
  for (int i = 0; i < 3; ++i)
    CHECK(ncclAllReduce(ring.data(i), ring.data(i), 8, ncclFloat32, ncclSum, ring.comm(i), ring.stream(i)) == ncclSuccess);
  REQUIRE(ncclGroupEnd() == ncclSuccess);
  for (int i = 0; i < 3; ++i) {
    CHECK(ring.values(i)[0] == 1.0f + 0x1p-24f + 0x1p-24f);  // 1: the other order would give more
    CHECK(ring.values(i)[1] == 3.0f);
  }
  REQUIRE(ncclGroupStart() == ncclSuccess);
  for (int i = 0; i < 3; ++i)
    CHECK(ncclAllReduce(ring.data(i), ring.data(i), i == 2 ? 7 : 8, ncclFloat32, ncclMax, ring.comm(i), ring.stream(i)) ==
          ncclSuccess);
  REQUIRE(ncclGroupEnd() == ncclSuccess);
  for (int i = 0; i < 3; ++i) CHECK(cudaStreamSynchronize(ring.stream(i)) == cudaSuccess);
  check_violation({"rank 0 reduces 8 f32, but rank 2 7 f32"});
}

TEST_CASE("all-reduce of 16-bit numbers, integers, and other reductions") {
  Machine machine({.devices = 2});
  Ring ring(2);
  const auto run = [&](const void* first, const void* second, size_t bytes, ncclDataType_t type, ncclRedOp_t reduction) {
    const void* inputs[2] = {first, second};
    REQUIRE(ncclGroupStart() == ncclSuccess);
    for (int i = 0; i < 2; ++i) {
      CHECK(cudaMemcpyAsync(ring.data(i), inputs[i], bytes, cudaMemcpyHostToDevice, ring.stream(i)) == cudaSuccess);
      CHECK(ncclAllReduce(ring.data(i), ring.data(i), 1, type, reduction, ring.comm(i), ring.stream(i)) == ncclSuccess);
    }
    REQUIRE(ncclGroupEnd() == ncclSuccess);
    std::vector<char> result(bytes);
    CHECK(cudaStreamSynchronize(ring.stream(0)) == cudaSuccess);
    CHECK(cudaMemcpyAsync(result.data(), ring.data(1), bytes, cudaMemcpyDeviceToHost, ring.stream(1)) == cudaSuccess);
    return result;
  };
  const auto as = [](const auto& value) {
    return std::vector<char>(reinterpret_cast<const char*>(&value), reinterpret_cast<const char*>(&value + 1));
  };
  const uint16_t one = to_bf16(1.0f), two = to_bf16(2.0f), three = to_bf16(3.0f);
  CHECK(run(&one, &two, 2, ncclBfloat16, ncclSum) == as(three));
  const uint16_t half_one = to_f16(1.0f), half_three = to_f16(3.0f), half_two = to_f16(2.0f);
  CHECK(run(&half_one, &half_three, 2, ncclFloat16, ncclAvg) == as(half_two));
  const int32_t small = -3, large = 4, product = -12;
  CHECK(run(&small, &large, 4, ncclInt32, ncclProd) == as(product));
  CHECK(run(&small, &large, 4, ncclInt32, ncclMin) == as(small));
  const double a = 0.5, b = 0.25, sum = 0.75;
  CHECK(run(&a, &b, 8, ncclFloat64, ncclSum) == as(sum));
}

/// A thread a rank, with its device, communicator, stream and one number of memory.
void with_ranks(int ranks, bool blocking, const std::function<void(int, ncclComm_t, cudaStream_t, float*)>& body) {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([=, &body] {
      CHECK(cudaSetDevice(rank) == cudaSuccess);
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = blocking ? 1 : 0;
      ncclComm_t comm = nullptr;
      const ncclResult_t result = ncclCommInitRankConfig(&comm, ranks, id, rank, &config);
      CHECK(result == (blocking ? ncclSuccess : ncclInProgress));
      Stream stream;
      Buffer<float> memory(std::vector<float>(1, static_cast<float>(rank)), stream);
      body(rank, comm, stream, memory.data);
      CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

/// Polls until the communicator is no longer in progress; how often it had to.
int poll(ncclComm_t comm) {
  ncclResult_t error = ncclInProgress;
  int polls = 0;
  for (; error == ncclInProgress && polls < 10000; ++polls) {
    CHECK(ncclCommGetAsyncError(comm, &error) == ncclSuccess);
    if (error == ncclInProgress) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  CHECK(error == ncclSuccess);
  return polls;
}

TEST_CASE("ranks in threads: a blocking communicator") {
  Machine machine({.devices = 3});
  with_ranks(3, true, [](int rank, ncclComm_t comm, cudaStream_t stream, float* memory) {
    if (rank > 0) CHECK(ncclRecv(memory, 1, ncclFloat32, rank - 1, comm, stream) == ncclSuccess);
    gpipe_emulated_launch(stream, "increment", [=] { *memory += 1; });
    if (rank < 2) CHECK(ncclSend(memory, 1, ncclFloat32, rank + 1, comm, stream) == ncclSuccess);
    float result = 0;
    CHECK(cudaMemcpyAsync(&result, memory, 4, cudaMemcpyDeviceToHost, stream) == cudaSuccess);
    CHECK(result == static_cast<float>(rank + 1));
    CHECK(ncclCommFinalize(comm) == ncclSuccess);
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
  });
}

TEST_CASE("ranks in threads: one that does not block is not on the stream until it is asked, and refuses more work until then") {
  Machine machine({.devices = 2});
  with_ranks(2, false, [](int rank, ncclComm_t comm, cudaStream_t stream, float* memory) {
    CHECK(poll(comm) > 1);
    CHECK(ncclGroupStart() == ncclSuccess);
    CHECK((rank == 0 ? ncclSend(memory, 1, ncclFloat32, 1, comm, stream) : ncclRecv(memory, 1, ncclFloat32, 0, comm, stream)) ==
          ncclSuccess);
    CHECK(ncclGroupEnd() == ncclInProgress);
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);  // nothing is there yet
    if (rank == 1) {
      float value = 0;
      CHECK(cudaMemcpyAsync(&value, memory, 4, cudaMemcpyDeviceToHost, stream) == cudaSuccess);
      CHECK(value == 1.0f);
    }
    poll(comm);
    if (rank == 1) {
      float value = 1;
      CHECK(cudaMemcpyAsync(&value, memory, 4, cudaMemcpyDeviceToHost, stream) == cudaSuccess);
      CHECK(value == 0.0f);
    }
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(ncclCommFinalize(comm) == ncclInProgress);
    poll(comm);
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
  });
  ncclComm_t comm = nullptr;
  ncclUniqueId id;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  REQUIRE(ncclCommInitRankConfig(&comm, 1, id, 0, &config) == ncclInProgress);
  Stream stream;
  Buffer<float> memory(1);
  CHECK(ncclSend(memory.data, 1, ncclFloat32, 0, comm, stream) == ncclInvalidArgument);
  check_violation({"ncclSend", "in progress"});
  CHECK(std::string(ncclGetLastError(comm)).find("in progress") != std::string::npos);
  CHECK(ncclCommAbort(comm) == ncclSuccess);
}

TEST_CASE("wrong arguments are refused by name") {
  Machine machine({.devices = 2, .nccl_timeout_s = 0.1});
  Ring ring(2);
  CHECK(ring.send(0, 2, 0) == ncclInvalidArgument);
  check_violation({"ncclSend: there is no rank 2"});
  CHECK(ring.send(0, 1, 6, 3) == ncclInvalidArgument);
  check_violation({"ncclSend: sendbuff is 12 bytes at offset 24 of 32 bytes of device 0"});
  CHECK(ncclRecv(ring.data(0), 1, ncclFloat32, 0, ring.comm(1), ring.stream(1)) == ncclInvalidArgument);
  check_violation({"ncclRecv: recvbuff", "device 0, which device 1 has no access to"});
  CHECK(ncclRecv(ring.data(1), 1, ncclFloat32, 0, ring.comm(1), ring.stream(0)) == ncclInvalidArgument);
  check_violation({"the communicator is of device 1, the stream of device 0"});
  CHECK(ncclGroupEnd() == ncclInvalidUsage);
  check_violation({"ncclGroupEnd: there is no ncclGroupStart"});
  REQUIRE(ncclGroupStart() == ncclSuccess);
  CHECK(ring.send(0, 9, 0) == ncclInvalidArgument);
  CHECK(ncclGroupEnd() == ncclInvalidArgument);  // the group fails with its first call that failed
  check_violation({"no rank 9"});
  const int twice[2] = {1, 1};
  ncclComm_t comms[2];
  CHECK(ncclCommInitAll(comms, 2, twice) == ncclInvalidUsage);
  check_violation({"ncclCommInitAll: device 1 has two ranks"});
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  CHECK(ncclCommInitRankConfig(comms, 2, id, 0, nullptr) == ncclSystemError);
  check_violation({"only 1 of 2 ranks came"});
  CHECK(ncclCommAbort(comms[0]) == ncclSuccess);
  ncclConfig_t config = {};
  CHECK(ncclCommInitRankConfig(comms, 2, id, 1, &config) == ncclInvalidArgument);
  check_violation({"NCCL_CONFIG_INITIALIZER"});
  CHECK(ncclCommInitRankConfig(comms, 2, ncclUniqueId{}, 1, nullptr) == ncclInvalidUsage);
  check_violation({"not from ncclGetUniqueId"});
  CHECK(std::string(ncclGetErrorString(ncclInProgress)) == "NCCL operation in progress");
  int version = 0;
  CHECK(ncclGetVersion(&version) == ncclSuccess);
  CHECK(version == NCCL_VERSION_CODE);
}

TEST_CASE("a rank whose device broke lets go; the other waits until it aborts") {
  Machine machine({.devices = 2, .delay_us = 0});
  Ring ring(2);
  CHECK(ring.send(0, 1, 0) == ncclSuccess);
  fail_at("bad", 1, cudaErrorLaunchFailure, 1, Failure::sticky);
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  gpipe_emulated_launch(ring.stream(1), "bad", [] {});
  CHECK(ring.receive(1, 0, 0) == ncclUnhandledCudaError);
  ncclResult_t error = ncclSuccess;
  CHECK(ncclCommGetAsyncError(ring.comm(1), &error) == ncclSuccess);
  CHECK(error == ncclUnhandledCudaError);
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  CHECK(ncclCommGetAsyncError(ring.comm(0), &error) == ncclSuccess);
  CHECK(error == ncclSuccess);
  ring.abort_all();
  CHECK(cudaStreamSynchronize(ring.stream(0)) == cudaSuccess);
}

TEST_CASE("communicators not given back are leaks; sends of memory nobody wrote are reported") {
  Machine machine({.devices = 1});
  {
    Ring ring(1);
    CHECK(leaks().size() == 3);
    Buffer<float> fresh(4);
    REQUIRE(ncclGroupStart() == ncclSuccess);
    CHECK(ncclSend(fresh.data, 4, ncclFloat32, 0, ring.comm(0), ring.stream(0)) == ncclSuccess);
    CHECK(ring.receive(0, 0, 0, 4) == ncclSuccess);
    REQUIRE(ncclGroupEnd() == ncclSuccess);
    CHECK(cudaStreamSynchronize(ring.stream(0)) == cudaSuccess);
    check_violation({"ncclSend read memory nobody wrote"});
  }
  CHECK(leaks().empty());
}

}  // namespace
}  // namespace gpipe::emulated
