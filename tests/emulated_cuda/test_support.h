// Small help for the tests of the emulation.
#pragma once

#include "tests/emulated_cuda/emulated.h"
#include "tests/emulated_cuda/launch.h"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace gpipe::emulated {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

/// New devices for one test, which must end without violations.
struct Machine {
  explicit Machine(const Options& options = {}) { reset(options); }
  ~Machine() {
    for (const std::string& sentence : violations()) FAIL_CHECK(sentence);
    reset();
  }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
};

/// Exactly one violation, which has each of the texts; waits for it at most `wait_s`.
inline void check_violation(const std::vector<std::string>& texts, double wait_s = 0) {
  std::vector<std::string> found = violations();
  for (double waited = 0; found.empty() && waited < wait_s; waited += 0.01) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    found = violations();
  }
  CHECK(found.size() == 1);
  for (const std::string& text : texts) {
    const std::string all = found.empty() ? "" : found.front();
    CHECK_MESSAGE(all.find(text) != std::string::npos, all, " lacks ", text);
  }
}

/// What gives something back succeeds, or says that the device is broken.
inline void check_given_back(cudaError_t status) {
  const bool good = status == cudaSuccess || status == cudaErrorIllegalAddress || status == cudaErrorLaunchFailure;
  CHECK_MESSAGE(good, "status ", status);
}

struct Stream {
  cudaStream_t handle = nullptr;
  Stream() { CHECK(cudaStreamCreateWithFlags(&handle, cudaStreamNonBlocking) == cudaSuccess); }
  ~Stream() { check_given_back(cudaStreamDestroy(handle)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return handle; }
  void synchronize() const { CHECK(cudaStreamSynchronize(handle) == cudaSuccess); }
};

struct Event {
  cudaEvent_t handle = nullptr;
  explicit Event(unsigned flags = cudaEventDisableTiming) { CHECK(cudaEventCreateWithFlags(&handle, flags) == cudaSuccess); }
  ~Event() { check_given_back(cudaEventDestroy(handle)); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  operator cudaEvent_t() const { return handle; }
};

/// Device memory, or pinned memory of the host.
template <class T>
struct Buffer {
  T* data = nullptr;
  size_t count = 0;
  bool pinned = false;
  explicit Buffer(size_t elements, bool is_pinned = false) : count(elements), pinned(is_pinned) {
    void* made = nullptr;
    CHECK((pinned ? cudaMallocHost(&made, elements * sizeof(T)) : cudaMalloc(&made, elements * sizeof(T))) == cudaSuccess);
    data = static_cast<T*>(made);
  }
  Buffer(const std::vector<T>& values, cudaStream_t stream) : Buffer(values.size()) { upload(values, stream); }
  ~Buffer() { check_given_back((pinned ? cudaFreeHost(data) : cudaFree(data))); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  size_t bytes() const { return count * sizeof(T); }
  void upload(const std::vector<T>& values, cudaStream_t stream) {
    CHECK(cudaMemcpyAsync(data, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice, stream) == cudaSuccess);
  }
  std::vector<T> download(cudaStream_t stream) const {
    std::vector<T> values(count);
    CHECK(cudaMemcpyAsync(values.data(), data, bytes(), cudaMemcpyDeviceToHost, stream) == cudaSuccess);
    return values;
  }
};

inline std::vector<float> random_floats(size_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(generator() % 2001) / 1000.0f - 1.0f;
  return values;
}

}  // namespace gpipe::emulated
