// Opening devices, their memory, and what is simple enough to be checked in a line.
#include "core/base/error.h"
#include "tests/support/device_block.h"
#include "tests/support/messages.h"

#include <doctest/doctest.h>

#include <cmath>
#include <string>

using namespace gpipe;
using namespace gpipe::test;
using tensor::Shape;

namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a device that is not there is refused with exit code 9 and says why") {
  CHECK(contains(message_of([] { device::open_backend("tpu", {}); }, base::ExitCode::device), "'tpu'"));
  CHECK(contains(message_of([] { device::open_backend("cuda:", {}); }, base::ExitCode::device), "'cuda:'"));
  CHECK(contains(message_of([] { device::open_backend("cpu", {.threads = 0}); }, base::ExitCode::usage), "at least 1 thread"));
  CHECK(!device::describe_devices().empty());
}

TEST_CASE("a core that is not there is refused when the thread is bound") {
  const auto backend = device::open_backend("cpu", {.threads = 1, .cores = {100000}});
  CHECK(contains(message_of([&] { backend->attach_thread(); }, base::ExitCode::device), "100000"));
}

TEST_CASE("memory comes zeroed and aligned, and a request beyond the machine names its bytes") {
  const auto backend = cpu();
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{100}, size_t{5} << 20}) {
    const auto memory = backend->allocate(bytes);
    CHECK(memory->bytes() == bytes);
    CHECK(reinterpret_cast<uintptr_t>(memory->data()) % 64 == 0);
    for (size_t i = 0; i < bytes; i += 37) REQUIRE(memory->data()[i] == std::byte{0});
  }
  CHECK(contains(message_of([&] { backend->allocate(size_t{1} << 60); }, base::ExitCode::memory), "1152921504606846976 bytes"));
}

TEST_CASE("sums of squares have the same bits for every number of threads, and are exact in double") {
  for (int64_t count : {1, 7, 63, 64, 65, 1000, 100003}) {
    const std::vector<float> values = noise(3, count);
    double plain = 0;
    for (float x : values) plain += static_cast<double>(x) * x;
    const auto one = cpu(1), two = cpu(2), three = cpu(3);
    const DeviceBlock x(*one, {count}, values);
    double sums[3] = {};
    const std::vector<device::SumOfSquares> all = {{x, &sums[0]}, {x, &sums[1]}, {x, &sums[2]}};
    one->sum_of_squares({&all[0], 1});
    two->sum_of_squares({&all[1], 1});
    three->sum_of_squares({&all[2], 1});
    CHECK(sums[0] == doctest::Approx(plain).epsilon(1e-12));
    CHECK(sums[0] == sums[1]);
    CHECK(sums[0] == sums[2]);
  }
}

TEST_CASE("an update of a whole parameter is the rule applied to each of its elements") {
  const std::vector<device::Update> rules = {
      device::SgdUpdate{.common = {.learning_rate = 0.1F, .gradient_scale = 0.5F, .l2 = 0.01F}},
      device::MomentumUpdate{.common = {.learning_rate = 0.1F}, .momentum = 0.9F, .nesterov = true},
      device::AdamUpdate{.common = {.learning_rate = 0.01F, .decoupled = 0.1F}, .correction1 = 0.1F, .root_correction2 = 0.03F},
      device::RmspropUpdate{.common = {.learning_rate = 0.01F}, .momentum = 0.9F}};
  for (int threads : {1, 2})
    for (size_t r = 0; r < rules.size(); ++r) {
      const auto backend = cpu(threads);
      const int64_t count = 9001;
      std::vector<float> positive = noise(4, count);
      for (float& x : positive) x = std::abs(x);
      const DeviceBlock weight(*backend, {count}, noise(1, count)), gradient(*backend, {count}, noise(2, count));
      const DeviceBlock first(*backend, {count}, positive), second(*backend, {count}, positive);
      std::vector<float> w = weight.values(), a = first.values(), b = second.values();
      const tensor::TensorView slots[] = {first, second};
      std::visit(
          [&](const auto& rule) {
            for (size_t i = 0; i < w.size(); ++i) rule(w[i], gradient[static_cast<int64_t>(i)], a[i], b[i]);
            const device::ParameterUpdate what{rule, weight, gradient, std::span(slots, static_cast<size_t>(rule.slots))};
            backend->update({&what, 1});
          },
          rules[r]);
      CAPTURE(r);
      CHECK(weight.values() == w);
      CHECK(first.values() == a);
      CHECK(second.values() == b);
    }
}

TEST_CASE("the convolutions and linear maps of common networks run on oneDNN's fast kernels") {
  const auto backend = cpu();
  for (const int64_t channels : {3, 16, 64, 128})
    for (const int64_t kernel : {1, 3})
      for (const int64_t stride : {1, 2}) {
        const int64_t pad = kernel / 2, out = (32 + 2 * pad - kernel) / stride + 1;
        const device::ConvolutionSpec spec{.in_height = 32,
                                           .in_width = 32,
                                           .in_channels = channels,
                                           .out_height = out,
                                           .out_width = out,
                                           .out_channels = 64,
                                           .kernel = {kernel, kernel},
                                           .stride = {stride, stride},
                                           .dilation = {1, 1},
                                           .pad_top = pad,
                                           .pad_bottom = pad,
                                           .pad_left = pad,
                                           .pad_right = pad};
        const std::string names = backend->convolution(spec, {4, 3})->implementation();
        CAPTURE(names);
        CHECK_FALSE(contains(names, "ref"));
      }
  CHECK_FALSE(contains(backend->linear({.in_features = 256, .out_features = 10}, {4, 3})->implementation(), "ref"));
}
