// Order: what CUDA promises holds, and what it does not promise does not.
#include "tests/emulated_cuda/test_support.h"

#include <atomic>
#include <chrono>
#include <thread>

namespace gpipe::emulated {
namespace {

/// A producer on one stream, a consumer on another, with or without the event between them: how often the consumer saw an old
/// number.
int wrong_numbers(bool with_wait, int rounds) {
  Machine machine({.seed = 3, .delay_us = 50});
  Stream producer, consumer;
  Buffer<int> memory(std::vector<int>(1, -1), producer);
  Buffer<int> seen(static_cast<size_t>(rounds));
  producer.synchronize();
  Event written, read;
  int* const from = memory.data;
  int* const to = seen.data;
  for (int i = 0; i < rounds; ++i) {
    CHECK(cudaStreamWaitEvent(producer, read, 0) == cudaSuccess);
    gpipe_emulated_launch(producer, "produce", [=] { *from = i; });
    CHECK(cudaEventRecord(written, producer) == cudaSuccess);
    if (with_wait) CHECK(cudaStreamWaitEvent(consumer, written, 0) == cudaSuccess);
    gpipe_emulated_launch(consumer, "consume", [=] { to[i] = *from; });
    CHECK(cudaEventRecord(read, consumer) == cudaSuccess);
  }
  producer.synchronize();
  consumer.synchronize();
  int wrong = 0;
  const std::vector<int> found = seen.download(consumer);
  for (int i = 0; i < rounds; ++i) wrong += found[static_cast<size_t>(i)] != i;
  return wrong;
}

TEST_CASE("with its wait a consumer sees every number; without, it does not") {
  CHECK(wrong_numbers(true, 300) == 0);
  if (!kThreadSanitizer) CHECK(wrong_numbers(false, 300) > 0);  // ThreadSanitizer would end the process: race_test.sh shows it
}

TEST_CASE("a wait captures the latest record at the time of the call; without a record it waits for nothing") {
  Machine machine({.delay_us = 0});
  Stream slow, fast;
  Event event;
  CHECK(cudaStreamWaitEvent(fast, event, 0) == cudaSuccess);  // never recorded
  fast.synchronize();
  CHECK(cudaEventQuery(event) == cudaSuccess);
  CHECK(cudaEventSynchronize(event) == cudaSuccess);
  std::atomic<bool> open = false;
  const auto closed_gate = [&] {
    while (!open) std::this_thread::yield();
  };
  CHECK(cudaEventRecord(event, slow) == cudaSuccess);
  CHECK(cudaStreamWaitEvent(fast, event, 0) == cudaSuccess);  // the first record
  gpipe_emulated_launch(slow, "gate", closed_gate);
  CHECK(cudaEventRecord(event, slow) == cudaSuccess);  // the second, behind the gate
  fast.synchronize();
  CHECK(cudaEventQuery(event) == cudaErrorNotReady);
  CHECK(cudaGetLastError() == cudaErrorNotReady);
  bool passed = false;
  CHECK(cudaStreamWaitEvent(fast, event, 0) == cudaSuccess);
  gpipe_emulated_launch(fast, "after", [&] { passed = true; });
  open = true;
  fast.synchronize();
  CHECK(passed);
  CHECK(cudaEventQuery(event) == cudaSuccess);
}

TEST_CASE("events may be waited for by streams of other devices, but are recorded on their own") {
  Machine machine({.devices = 2});
  Stream first;
  Event event;
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  Stream second;
  CHECK(cudaEventRecord(event, second) == cudaErrorInvalidResourceHandle);
  check_violation({"cudaEventRecord: the event is of device 0, the stream of device 1"});
  int value = 0;
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  gpipe_emulated_launch(first, "write", [&] { value = 7; });
  CHECK(cudaEventRecord(event, first) == cudaSuccess);
  CHECK(cudaStreamWaitEvent(second, event, 0) == cudaSuccess);
  int seen = 0;
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  gpipe_emulated_launch(second, "read", [&] { seen = value; });
  second.synchronize();
  CHECK(seen == 7);
  gpipe_emulated_launch(first, "wrong device", [] {});
  CHECK(cudaGetLastError() == cudaErrorInvalidResourceHandle);
  check_violation({"kernel wrong device", "device 0", "current device is 1"});
}

TEST_CASE("a stream runs in order, while the host goes on") {
  Machine machine({.seed = 9, .delay_us = 200});
  Stream stream;
  std::vector<int> order;
  std::atomic<bool> open = false;
  gpipe_emulated_launch(stream, "gate", [&] {
    while (!open) std::this_thread::yield();
  });
  for (int i = 0; i < 50; ++i) gpipe_emulated_launch(stream, "append", [&order, i] { order.push_back(i); });
  open = true;  // the host came here with all of it to be done
  stream.synchronize();
  REQUIRE(order.size() == 50);
  for (int i = 0; i < 50; ++i) CHECK(order[static_cast<size_t>(i)] == i);
}

TEST_CASE("time between events is measured where both can measure and are done") {
  Machine machine({.delay_us = 0});
  Stream stream;
  Event start(cudaEventDefault), end(cudaEventDefault), plain;
  float ms = -1;
  CHECK(cudaEventElapsedTime(&ms, start, end) == cudaErrorInvalidResourceHandle);
  check_violation({"cudaEventElapsedTime", "never recorded"});
  CHECK(cudaEventRecord(start, stream) == cudaSuccess);
  std::atomic<bool> open = false;
  gpipe_emulated_launch(stream, "gate", [&] {
    while (!open) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  });
  CHECK(cudaEventRecord(end, stream) == cudaSuccess);
  CHECK(cudaEventRecord(plain, stream) == cudaSuccess);
  CHECK(cudaEventElapsedTime(&ms, start, end) == cudaErrorNotReady);
  open = true;
  CHECK(cudaEventSynchronize(end) == cudaSuccess);
  CHECK(cudaEventElapsedTime(&ms, start, end) == cudaSuccess);
  CHECK(ms >= 20.0f);
  CHECK(cudaEventElapsedTime(&ms, start, plain) == cudaErrorInvalidResourceHandle);
  check_violation({"without timing"});
}

TEST_CASE("a device is idle only when its destroyed streams are; thousands of streams and allocations come and go") {
  Machine machine({.delay_us = 0});
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  int done = 0;
  gpipe_emulated_launch(stream, "slow", [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    done = 1;
  });
  CHECK(cudaStreamDestroy(stream) == cudaSuccess);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(done == 1);
  for (int i = 0; i < 3000; ++i) {
    Stream one;
    Buffer<int> memory(1);
    gpipe_emulated_launch(one, "count", [&] { ++done; });
    one.synchronize();
  }
  CHECK(done == 3001);
}

TEST_CASE("streams and events that were destroyed finish their work, and are no longer accepted") {
  Machine machine({.delay_us = 0});
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  REQUIRE(cudaEventCreateWithFlags(&event, 0) == cudaSuccess);
  std::atomic<bool> ran = false;
  gpipe_emulated_launch(stream, "slow", [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ran = true;
  });
  REQUIRE(cudaEventRecord(event, stream) == cudaSuccess);
  Stream other;
  REQUIRE(cudaStreamWaitEvent(other, event, 0) == cudaSuccess);
  CHECK(cudaEventDestroy(event) == cudaSuccess);
  CHECK(cudaStreamDestroy(stream) == cudaSuccess);
  other.synchronize();
  CHECK(ran);
  CHECK(cudaStreamSynchronize(stream) == cudaErrorInvalidResourceHandle);
  check_violation({"cudaStreamSynchronize", "destroyed"});
  CHECK(cudaEventRecord(event, other) == cudaErrorInvalidResourceHandle);
  check_violation({"cudaEventRecord", "event", "destroyed"});
  CHECK(cudaStreamCreateWithFlags(&stream, 77) == cudaErrorInvalidValue);
  check_violation({"flags"});
}

}  // namespace
}  // namespace gpipe::emulated
