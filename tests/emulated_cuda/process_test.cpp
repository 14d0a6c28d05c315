// What ends a process, shown in children of the test program: cases that only those run.
#include "tests/emulated_cuda/test_support.h"

#include <sys/wait.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <unistd.h>

namespace gpipe::emulated {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitizer = true;
#else
constexpr bool kSanitizer = false;
#endif

struct Child {
  int status = 0;
  std::string output;
  bool says(const std::string& text) const { return output.find(text) != std::string::npos; }
};

/// Runs one of the cases below, with `environment` ("NAME=value").
Child run_child(const std::string& name, const std::string& environment = "") {
  std::array<char, 4096> self = {};
  REQUIRE(readlink("/proc/self/exe", self.data(), self.size() - 1) > 0);
  const std::string command = "exec env " + environment + " '" + self.data() + "' --no-skip --test-case='" + name + "' 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  Child child;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) child.output.push_back(static_cast<char>(c));
  child.status = pclose(pipe);
  return child;
}

TEST_CASE("child: violations that nobody reads" * doctest::skip()) {
  CHECK(cudaStreamSynchronize(nullptr) == cudaErrorInvalidResourceHandle);
}

TEST_CASE("a process that leaves violations unread aborts and prints them") {
  const Child child = run_child("child: violations that nobody reads");
  CHECK(WIFSIGNALED(child.status));
  CHECK(child.says("cudaStreamSynchronize: the default stream is not emulated"));
  CHECK(child.says("1 violations that no test read"));
}

TEST_CASE("child: a missing wait" * doctest::skip()) {
  reset({.delay_us = 0});
  Stream producer, consumer;
  Buffer<int> memory(2);
  int* const at = memory.data;
  for (int i = 0; i < 20; ++i) {
    gpipe_emulated_launch(producer, "produce", [=] { at[0] = i; });
    gpipe_emulated_launch(consumer, "consume", [=] { at[1] = at[0]; });
  }
  producer.synchronize();
  consumer.synchronize();
}

TEST_CASE("child: a missing wait for a copy from pinned memory" * doctest::skip()) {
  reset({.delay_us = 0});
  Stream stream;
  Buffer<int> memory(1), pinned(1, true);
  for (int i = 0; i < 20; ++i) {
    pinned.data[0] = i;
    CHECK(cudaMemcpyAsync(memory.data, pinned.data, 4, cudaMemcpyHostToDevice, stream) == cudaSuccess);
  }
  stream.synchronize();
}

TEST_CASE("ThreadSanitizer sees a missing wait, however the threads happen to run") {
  if (!kThreadSanitizer) return;
  CHECK(run_child("child: a missing wait").says("data race"));
  CHECK(run_child("child: a missing wait for a copy from pinned memory").says("data race"));
}

TEST_CASE("child: a kernel on freed memory" * doctest::skip()) {
  reset();
  Stream stream;
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, 4) == cudaSuccess);
  REQUIRE(cudaFree(memory) == cudaSuccess);
  gpipe_emulated_launch(stream, "stale", [=] { *static_cast<int*>(memory) = 1; });
  stream.synchronize();
}

TEST_CASE("child: a kernel past the end" * doctest::skip()) {
  reset();
  Stream stream;
  Buffer<int> memory(64);
  int* const at = memory.data;
  gpipe_emulated_launch(stream, "beyond", [=] { at[64] = 1; });
  stream.synchronize();
}

TEST_CASE("child: the host on device memory" * doctest::skip()) {
  reset({.protect = true});
  Stream stream;
  Buffer<int> memory(1);
  int* const at = memory.data;
  gpipe_emulated_launch(stream, "write", [=] { *at = 7; });
  CHECK(memory.download(stream).front() == 7);
  std::printf("the host read %d\n", *static_cast<volatile int*>(at));
}

TEST_CASE("a kernel that touches freed memory or a guard page, and a host that touches device memory, end with their names") {
  for (const char* name :
       {"child: a kernel on freed memory", "child: a kernel past the end", "child: the host on device memory"}) {
    const Child child = run_child(name);
    CHECK(child.status != 0);
    CHECK(!child.says("the host read"));
  }
  if (kSanitizer) return;  // those have handlers of their own
  CHECK(run_child("child: a kernel on freed memory").says("ran kernel stale touched freed memory"));
  CHECK(run_child("child: a kernel past the end").says("ran kernel beyond touched"));
  CHECK(run_child("child: the host on device memory").says("the host touched memory of a device"));
}

TEST_CASE("child: devices by the environment" * doctest::skip()) {
  int count = 0;
  size_t free = 0, total = 0;
  CHECK(cudaGetDeviceCount(&count) == cudaSuccess);
  CHECK(count == 3);
  CHECK(cudaMemGetInfo(&free, &total) == cudaSuccess);
  CHECK(total == 2 << 20);
  void* memory = nullptr;
  CHECK(cudaMalloc(&memory, 4) == cudaSuccess);
  CHECK(cudaMalloc(&memory, 4) == cudaErrorMemoryAllocation);
  int can = 1;
  CHECK(cudaDeviceCanAccessPeer(&can, 0, 1) == cudaSuccess);
  CHECK(can == 0);
}

TEST_CASE("the environment sets up the devices of a whole program") {
  CHECK(run_child("child: devices by the environment", "GPIPE_EMULATED_CUDA=devices=3,memory_mib=2,peers=0,fail=cudaMalloc:2:2")
            .status == 0);
  CHECK(run_child("child: devices by the environment", "GPIPE_EMULATED_CUDA=devises=3").says("has no key 'devises'"));
}

}  // namespace
}  // namespace gpipe::emulated
