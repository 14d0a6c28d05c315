// Which of cuDNN's algorithms a convolution runs with: suggested or measured, chosen once, and refused where it cannot run.
#include "core/device/algorithms.h"

#include "tests/device_cuda/machine.h"
#include "tests/support/device_block.h"
#include "tests/support/messages.h"

#include <doctest/doctest.h>

#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <map>
#include <set>
#include <string>
#include <tuple>

using namespace gpipe;
using namespace gpipe::test;
using device::Algorithms;

namespace {

using Rule = Algorithms::Rule;

std::shared_ptr<Algorithms> algorithms(Rule rule, bool deterministic = true, Algorithms::Choices known = {}) {
  return std::make_shared<Algorithms>(rule, deterministic, std::move(known));
}

/// "forward:1 input:1 weight:1" of a small convolution.
std::string words(const std::shared_ptr<Algorithms>& of, int index = 0, device::Precision precision = device::Precision::f32) {
  const std::string text =
      gpu(index, {.precision = precision, .algorithms = of})->convolution(small_convolution(), {2})->implementation();
  return text.substr(6, text.size() - 7);
}

/// What was found in so many fresh measurements.
std::set<std::string> measured_words(int times, bool deterministic) {
  std::set<std::string> found;
  for (int i = 0; i < times; ++i) found.insert(words(algorithms(Rule::measured, deterministic)));
  return found;
}

int64_t measurements() {
  const auto calls = emulated::coverage();
  int64_t sum = 0;
  for (const char* direction : {"Forward", "BackwardData", "BackwardFilter"})
    sum += calls.at(std::string("cudnnFindConvolution") + direction + "AlgorithmEx");
  return sum;
}

/// y of a small convolution of made-up numbers.
std::vector<float> forward(const std::shared_ptr<Algorithms>& of) {
  const auto backend = gpu(0, {.algorithms = of});
  const auto op = backend->convolution(small_convolution(), {2});
  const DeviceBlock x(*backend, {2, 5, 5, 3}, noise(1, 150)), weight(*backend, {4, 3, 3, 3}, noise(2, 108));
  const DeviceBlock bias(*backend, {4}, noise(3, 4)), y(*backend, {2, 5, 5, 4});
  const auto packed = backend->allocate(op->packed_weight_bytes()), workspace = backend->allocate(op->workspace_bytes());
  op->pack_weight(weight, packed->data(), workspace->data());
  op->forward(x, {weight, packed->data()}, bias, y, workspace->data());
  return y.values();
}

}  // namespace

TEST_CASE("without measuring it is cuDNN's first suggestion of the same bits every time, without any object too") {
  const Machine machine;
  const int64_t before = measurements();
  for (int i = 0; i < 5; ++i) CHECK(words(algorithms(Rule::suggested)) == "forward:1 input:1 weight:1");
  CHECK(words(nullptr) == "forward:1 input:1 weight:1");
  CHECK(measurements() == before);
}

TEST_CASE("measured, it is the fastest of the same bits every time, and the memory to measure in is given back") {
  const Machine machine;
  CHECK(measured_words(40, true) == std::set<std::string>{"forward:0 input:1 weight:1", "forward:1 input:1 weight:1"});
  CHECK(emulated::used_bytes(0) == 0);
}

TEST_CASE("algorithms of other bits every time are taken only when they are allowed, suggested or measured") {
  const Machine machine;
  const auto any = algorithms(Rule::suggested, false);
  CHECK(words(any) == "forward:1 input:0 weight:0");
  std::set<std::string> inputs;
  for (const std::string& found : measured_words(40, false)) inputs.insert(found.substr(10));
  CHECK(inputs.size() > 1);
  CHECK(inputs.contains("input:0 weight:0"));
  CHECK(words(algorithms(Rule::suggested, true, any->choices())) == "forward:1 input:1 weight:1");  // what was chosen so is not
}

TEST_CASE("a choice is made once: for all devices of a run, and for those who are given it, with the same bits") {
  const Machine machine({.devices = 2});
  std::map<std::string, std::vector<float>> bits;
  for (int i = 0; i < 40 && bits.size() < 2; ++i) {
    const auto first = algorithms(Rule::measured);
    const std::vector<float> y = forward(first);
    const std::string chosen = words(first);
    CHECK(first->choices().size() == 3);
    const int64_t before = measurements();
    CHECK(words(first, 1) == chosen);
    for (const Rule rule : {Rule::measured, Rule::suggested}) {
      const auto again = algorithms(rule, true, first->choices());
      CHECK(forward(again) == y);
      CHECK(words(again, 1) == chosen);
      CHECK(again->choices() == first->choices());
    }
    CHECK(measurements() == before);
    bits[chosen] = y;
  }
  REQUIRE(bits.size() == 2);
  CHECK(bits.begin()->second != bits.rbegin()->second);  // so that the choice can be seen in them
}

TEST_CASE("a choice belongs to shapes, batch size, precision, GPU and libraries") {
  const Machine machine;
  const auto all = algorithms(Rule::suggested);
  words(all);
  for (const auto& [key, choice] : all->choices())
    check_contains(key, {"x 2x5x5x3", "kernel 3x3 to 4", "stride 1x1", "dilation 1x1", "padding 1x1", "groups 1", "cuDNN 9."});
  words(all, 0, device::Precision::tf32);
  CHECK(all->choices().size() == 6);
  gpu(0, {.algorithms = all})->convolution(small_convolution(), {3});
  CHECK(all->choices().size() == 9);
}

TEST_CASE("a choice that cuDNN cannot run is refused with what to do, whatever it is") {
  const Machine machine;
  const auto made = algorithms(Rule::suggested);
  words(made);
  for (const std::string choice : {"7", "12", "-1", "", "fast"})  // NCHW only; not there; no number
    for (const std::string direction : {"forward pass", "input gradient", "weight gradient"}) {
      Algorithms::Choices known = made->choices();
      for (auto& [key, value] : known)
        if (key.starts_with("convolution, " + direction)) value = choice;
      check_contains(message_of([&] { words(algorithms(Rule::suggested, true, known)); }, base::ExitCode::usage),
                     {"algorithm \"" + choice + "\"", direction, "3 channels to 4", "gpipe-train profile", "--profile-from"});
    }
}

TEST_CASE("what fails while measuring is told, and the next measurement works") {
  const Machine machine;
  for (const auto& [call, status, code] :
       {std::tuple{"cudnnFindConvolutionBackwardDataAlgorithmEx", int{CUDNN_STATUS_EXECUTION_FAILED}, base::ExitCode::device},
        std::tuple{"cudaMalloc", int{cudaErrorMemoryAllocation}, base::ExitCode::memory}}) {
    const auto of = algorithms(Rule::measured);
    const auto backend = gpu(0, {.algorithms = of});
    emulated::fail_at(call, 1, status);
    check_contains(message_of([&] { backend->convolution(small_convolution(), {2}); }, code), {"cuda:0"});
    emulated::clear_failures();
    CHECK(backend->convolution(small_convolution(), {2})->implementation().starts_with("cudnn forward:"));
  }
}
