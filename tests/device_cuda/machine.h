// Backends on emulated GPUs for one test.
#pragma once

#include "core/device/backend.h"
#include "tests/emulated_cuda/emulated.h"

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

namespace gpipe::test {

/// Some devices for one test, which must end with nothing misused and nothing kept.
struct Machine {
  explicit Machine(const emulated::Options& options = {}) { emulated::reset(options); }
  ~Machine() {
    emulated::clear_failures();
    for (const std::string& sentence : emulated::violations()) FAIL_CHECK(sentence);
    for (const std::string& sentence : emulated::leaks()) FAIL_CHECK(sentence);
    emulated::reset();  // ends the threads of streams
  }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
};

inline std::unique_ptr<device::Backend> gpu(int index = 0, const device::BackendOptions& options = {}) {
  auto backend = device::open_backend("cuda:" + std::to_string(index), options);
  backend->attach_thread();
  return backend;
}

inline void check_contains(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) CHECK_MESSAGE(text.find(part) != std::string::npos, text, " lacks ", part);
}

inline device::ConvolutionSpec small_convolution() {
  return {.in_height = 5,
          .in_width = 5,
          .in_channels = 3,
          .out_height = 5,
          .out_width = 5,
          .out_channels = 4,
          .kernel = {3, 3},
          .stride = {1, 1},
          .dilation = {1, 1},
          .pad_top = 1,
          .pad_bottom = 1,
          .pad_left = 1,
          .pad_right = 1};
}

}  // namespace gpipe::test
