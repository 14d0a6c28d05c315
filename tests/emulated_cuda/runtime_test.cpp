// Devices, memory, copies, errors, planned failures, leaks.
#include "tests/emulated_cuda/test_support.h"

#include <cmath>
#include <thread>

namespace gpipe::emulated {
namespace {

TEST_CASE("memory is limited, counted, poisoned and given back") {
  Machine machine({.memory_bytes = 1 << 20});
  size_t free = 0, total = 0;
  REQUIRE(cudaMemGetInfo(&free, &total) == cudaSuccess);
  CHECK(free == 1 << 20);
  CHECK(total == 1 << 20);
  {
    Buffer<float> memory(1000);
    REQUIRE(cudaMemGetInfo(&free, &total) == cudaSuccess);
    CHECK(free == (1 << 20) - 4096);
    CHECK(reinterpret_cast<uintptr_t>(memory.data) % 256 == 0);
    void* more = nullptr;
    CHECK(cudaMalloc(&more, 1 << 20) == cudaErrorMemoryAllocation);
    CHECK(more == nullptr);
    CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
    CHECK(cudaGetLastError() == cudaSuccess);
    Stream stream;
    CHECK(std::isnan(memory.download(stream).at(999)));
  }
  CHECK(used_bytes(0) == 0);
  void* none = nullptr;
  CHECK(cudaMalloc(&none, 0) == cudaSuccess);
  CHECK(cudaFree(none) == cudaSuccess);
}

TEST_CASE("what is freed wrongly, or too early, is reported") {
  Machine machine;
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, 100) == cudaSuccess);
  CHECK(cudaFree(static_cast<char*>(memory) + 4) == cudaErrorInvalidValue);
  check_violation({"cudaFree", "is inside"});
  CHECK(cudaFreeHost(memory) == cudaErrorInvalidValue);
  check_violation({"cudaFreeHost", "other kind"});
  CHECK(cudaFree(memory) == cudaSuccess);
  CHECK(cudaFree(memory) == cudaErrorInvalidValue);
  check_violation({"freed already"});
  int local = 0;
  CHECK(cudaFree(&local) == cudaErrorInvalidValue);
  check_violation({"never allocated"});
  Stream stream;
  REQUIRE(cudaMalloc(&memory, 100) == cudaSuccess);
  gpipe_emulated_launch(stream, "slow", [] { std::this_thread::sleep_for(std::chrono::milliseconds(400)); });
  REQUIRE(cudaMemsetAsync(memory, 0, 100, stream) == cudaSuccess);
  CHECK(cudaFree(memory) == cudaSuccess);
  check_violation({"cudaFree", "still used by a stream: cudaMemsetAsync"});
}

TEST_CASE("copies past an allocation, of freed or foreign memory, or against their kind, are refused") {
  Machine machine({.devices = 2});
  Stream stream;
  Buffer<char> memory(100);
  std::vector<char> host(200);
  CHECK(cudaMemcpyAsync(memory.data, host.data(), 101, cudaMemcpyHostToDevice, stream) == cudaErrorInvalidValue);
  check_violation({"cudaMemcpyAsync: dst is 101 bytes at offset 0 of 100 bytes of device 0"});
  CHECK(cudaMemcpyAsync(memory.data + 50, memory.data, 60, cudaMemcpyDeviceToDevice, stream) == cudaErrorInvalidValue);
  check_violation({"dst is 60 bytes at offset 50"});
  CHECK(cudaMemcpyAsync(memory.data + 5, memory.data, 60 - 10, cudaMemcpyDeviceToDevice, stream) == cudaErrorInvalidValue);
  check_violation({"overlap"});
  CHECK(cudaMemcpyAsync(host.data(), memory.data, 10, cudaMemcpyDeviceToDevice, stream) == cudaErrorInvalidValue);
  check_violation({"dst", "memory of the host, the kind says otherwise"});
  CHECK(cudaMemcpyAsync(memory.data, host.data(), 10, static_cast<cudaMemcpyKind>(7), stream) == cudaErrorInvalidMemcpyDirection);
  CHECK(cudaMemcpy2DAsync(memory.data, 8, host.data(), 10, 9, 3, cudaMemcpyHostToDevice, stream) == cudaErrorInvalidPitchValue);
  check_violation({"cudaMemcpy2DAsync", "pitch"});
  CHECK(cudaMemsetAsync(memory.data + 1, 0, 100, stream) == cudaErrorInvalidValue);
  check_violation({"cudaMemsetAsync: devPtr"});
  CHECK(cudaMemsetAsync(host.data(), 0, 100, stream) == cudaErrorInvalidValue);
  check_violation({"memory of the host"});
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  Buffer<char> foreign(100);
  CHECK(cudaMemsetAsync(memory.data, 0, 100, stream) == cudaErrorInvalidResourceHandle);
  check_violation({"its stream is of device 0, but the current device is 1"});
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  CHECK(cudaMemsetAsync(foreign.data, 0, 100, stream) == cudaErrorInvalidValue);
  check_violation({"memory of device 1, which device 0 has no access to"});
  CHECK(cudaMemcpyAsync(memory.data, foreign.data, 100, cudaMemcpyDeviceToDevice, stream) == cudaErrorInvalidValue);
  check_violation({"src", "no access"});
  REQUIRE(cudaDeviceEnablePeerAccess(1, 0) == cudaSuccess);
  CHECK(cudaMemcpyAsync(memory.data, foreign.data, 100, cudaMemcpyDeviceToDevice, stream) == cudaSuccess);
  CHECK(cudaMemcpyPeerAsync(memory.data, 0, foreign.data, 0, 100, stream) == cudaErrorInvalidValue);
  check_violation({"cudaMemcpyPeerAsync: src is memory of device 1, not of 0"});
  CHECK(cudaMemcpyPeerAsync(foreign.data, 1, memory.data, 0, 100, stream) == cudaSuccess);
  CHECK(cudaMemcpyAsync(memory.data, host.data(), 10, cudaMemcpyHostToDevice, nullptr) == cudaErrorInvalidResourceHandle);
  check_violation({"default stream"});
  stream.synchronize();
}

TEST_CASE("copies move bytes: rows with pitches, between devices without access, and by the default kind") {
  Machine machine({.devices = 2, .peers = false});
  Stream stream;
  std::vector<char> host(24);
  for (size_t i = 0; i < host.size(); ++i) host[i] = static_cast<char>(i);
  Buffer<char> memory(std::vector<char>(40, 'x'), stream);
  REQUIRE(cudaMemcpy2DAsync(memory.data, 10, host.data(), 6, 5, 4, cudaMemcpyHostToDevice, stream) == cudaSuccess);
  const std::vector<char> found = memory.download(stream);
  for (size_t row = 0; row < 4; ++row) {
    for (size_t i = 0; i < 10; ++i) CHECK(found[row * 10 + i] == (i < 5 ? host[row * 6 + i] : 'x'));
  }
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  Buffer<char> other(40);
  CHECK(cudaDeviceEnablePeerAccess(0, 0) == cudaErrorPeerAccessUnsupported);
  check_violation({"cudaDeviceEnablePeerAccess", "cannot reach"});
  int can = 1;
  CHECK(cudaDeviceCanAccessPeer(&can, 0, 1) == cudaSuccess);
  CHECK(can == 0);
  REQUIRE(cudaMemcpyPeerAsync(other.data, 1, memory.data, 0, 40, stream) == cudaSuccess);
  stream.synchronize();
  Stream second;
  std::vector<char> back(40);
  REQUIRE(cudaMemcpyAsync(back.data(), other.data, 40, cudaMemcpyDefault, second) == cudaSuccess);
  CHECK(back == found);
  Buffer<char> pinned(40, true);
  REQUIRE(cudaMemcpyAsync(pinned.data, back.data(), 40, cudaMemcpyDefault, second) == cudaSuccess);
  CHECK(std::vector<char>(pinned.data, pinned.data + 40) == found);
}

TEST_CASE("writes past the end of an allocation are found") {
  reset();
  Stream stream;
  {
    Buffer<char> memory(100);
    char* data = memory.data;
    gpipe_emulated_launch(stream, "careless", [data] { data[101] = 1; });
    stream.synchronize();
    check_violation({"wrote past the end", "100 bytes of device 0"});
  }
  CHECK(violations().empty());
}

TEST_CASE("pageable memory is staged or waited for, pinned memory is not") {
  Machine machine({.delay_us = 0});
  Stream stream;
  Buffer<int> memory(1);
  const auto busy = [&] {
    gpipe_emulated_launch(stream, "busy", [] { std::this_thread::sleep_for(std::chrono::milliseconds(30)); });
  };
  busy();
  int value = 1;
  REQUIRE(cudaMemcpyAsync(memory.data, &value, 4, cudaMemcpyHostToDevice, stream) == cudaSuccess);
  value = 2;  // staged before the call came back
  CHECK(memory.download(stream).front() == 1);
  Buffer<int> pinned(1, true);
  pinned.data[0] = 5;
  busy();
  const int64_t waits = host_waits();
  REQUIRE(cudaMemcpyAsync(memory.data, pinned.data, 4, cudaMemcpyHostToDevice, stream) == cudaSuccess);
  CHECK(host_waits() == waits);
  stream.synchronize();
  CHECK(memory.download(stream).front() == 5);
}

TEST_CASE("each thread of the host has its own current device and last error") {
  Machine machine({.devices = 3});
  REQUIRE(cudaSetDevice(2) == cudaSuccess);
  CHECK(cudaSetDevice(3) == cudaErrorInvalidDevice);
  std::thread([] {
    int device = -1;
    CHECK(cudaGetDevice(&device) == cudaSuccess);
    CHECK(device == 0);
    CHECK(cudaPeekAtLastError() == cudaSuccess);
  }).join();
  int device = -1, count = 0;
  CHECK(cudaGetDevice(&device) == cudaSuccess);
  CHECK(device == 2);
  CHECK(cudaPeekAtLastError() == cudaErrorInvalidDevice);
  CHECK(cudaGetDeviceCount(&count) == cudaSuccess);
  CHECK(count == 3);
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 1) == cudaSuccess);
  CHECK(properties.totalGlobalMem == size_t{1} << 30);
  int value = 0;
  CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, 1) == cudaSuccess);
  CHECK(value == properties.major);
  CHECK(std::string(cudaGetErrorName(cudaErrorInvalidDevice)) == "cudaErrorInvalidDevice");
  CHECK(std::string(cudaGetErrorString(cudaErrorInvalidDevice)) == "invalid device ordinal");
  CHECK(cudaRuntimeGetVersion(&value) == cudaSuccess);
  CHECK(value == CUDART_VERSION);
  CHECK(cudaDriverGetVersion(&value) == cudaSuccess);
}

TEST_CASE("no device: every call says so") {
  Machine machine({.devices = 0});
  int count = -1;
  CHECK(cudaGetDeviceCount(&count) == cudaErrorNoDevice);
  CHECK(count == 0);
  void* memory = nullptr;
  CHECK(cudaMalloc(&memory, 4) == cudaErrorNoDevice);
  CHECK(cudaSetDevice(0) == cudaErrorInvalidDevice);
}

TEST_CASE("the n-th call of a function fails as planned") {
  Machine machine({.devices = 2});
  fail_at("cudaMalloc", 2, cudaErrorMemoryAllocation);
  fail_at("cudaMalloc", 1, cudaErrorMemoryAllocation, 1);
  Buffer<int> first(1);
  void* memory = nullptr;
  CHECK(cudaMalloc(&memory, 4) == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
  Buffer<int> third(1);
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  CHECK(cudaMalloc(&memory, 4) == cudaErrorMemoryAllocation);
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  Stream stream;
  fail_at("scale", 1, cudaErrorLaunchOutOfResources);
  bool ran = false;
  gpipe_emulated_launch(stream, "other", [] {});
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaSuccess);
  gpipe_emulated_launch(stream, "scale", [&] { ran = true; });
  CHECK(cudaGetLastError() == cudaErrorLaunchOutOfResources);
  stream.synchronize();
  CHECK(!ran);
  fail_at("cudaMemsetAsync", 1, cudaErrorInvalidValue);
  clear_failures();
  CHECK(cudaMemsetAsync(first.data, 0, 4, stream) == cudaSuccess);
  stream.synchronize();
}

TEST_CASE("a broken device stays broken, and only that one; queued work is dropped") {
  for (const Failure failure : {Failure::sticky, Failure::asynchronous, Failure::lost}) {
    Machine machine({.devices = 2});
    Stream stream;
    fail_at("bad", 1, cudaErrorLaunchFailure, -1, failure);
    gpipe_emulated_launch(stream, "bad", [] {});
    bool ran = false;
    if (failure == Failure::asynchronous) {
      gpipe_emulated_launch(stream, "late", [&] { ran = true; });
    } else {
      CHECK(cudaPeekAtLastError() == cudaErrorLaunchFailure);
    }
    CHECK(cudaStreamSynchronize(stream) == cudaErrorLaunchFailure);
    CHECK(cudaDeviceSynchronize() == cudaErrorLaunchFailure);
    CHECK(!ran);
    void* memory = nullptr;
    CHECK(cudaMalloc(&memory, 4) == cudaErrorLaunchFailure);
    CHECK(cudaGetLastError() == cudaErrorLaunchFailure);
    CHECK(cudaGetLastError() == cudaErrorLaunchFailure);
    REQUIRE(cudaSetDevice(1) == cudaSuccess);
    CHECK(cudaGetLastError() == cudaSuccess);
    Buffer<int> other(1);
    CHECK(cudaSetDevice(0) == (failure == Failure::lost ? cudaErrorLaunchFailure : cudaSuccess));
    REQUIRE(cudaSetDevice(1) == cudaSuccess);
  }
}

TEST_CASE("leaks are listed until reset") {
  reset();
  void* memory = nullptr;
  void* pinned = nullptr;
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  REQUIRE(cudaMalloc(&memory, 10) == cudaSuccess);
  REQUIRE(cudaMallocHost(&pinned, 20) == cudaSuccess);
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  REQUIRE(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);
  CHECK(leaks().size() == 4);
  CHECK(leaks().front().find("bytes of") != std::string::npos);
  reset();
  CHECK(leaks().empty());
  CHECK(cudaEventDestroy(event) == cudaErrorInvalidResourceHandle);
  check_violation({"never given out"});
}

TEST_CASE("calls are counted by function, and those never made are there too") {
  Machine machine;
  const int64_t before = coverage().at("cudaMemGetInfo");
  size_t free = 0, total = 0;
  REQUIRE(cudaMemGetInfo(&free, &total) == cudaSuccess);
  CHECK(coverage().at("cudaMemGetInfo") == before + 1);
  CHECK(coverage().count("ncclAllReduce") == 1);
}

}  // namespace
}  // namespace gpipe::emulated
