// Products with factors of fewer bits: right where the factors have few bits anyway, near where they have more.
#include "core/base/error.h"
#include "tests/support/device_block.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <functional>

using namespace gpipe;
using device::Precision;
using test::DeviceBlock;

namespace {

/// Null, and says so, where the processor has no bf16.
std::unique_ptr<device::Backend> narrow_cpu(int threads) {
  try {
    auto backend = device::open_backend("cpu", {.threads = threads, .precision = Precision::bf16});
    backend->attach_thread();
    return backend;
  } catch (const base::ConfigError& error) {
    MESSAGE("skipped: " << error.what());
    return nullptr;
  }
}

/// The nearest number with 8 bits of fraction (one of them not stored), ties to even.
float rounded(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  return std::bit_cast<float>((bits + 0x7FFFU + (bits >> 16 & 1U)) & 0xFFFF0000U);
}

std::vector<float> all_rounded(std::vector<float> values) {
  for (float& x : values) x = rounded(x);
  return values;
}

using Plan = std::function<std::unique_ptr<device::WeightedOp>(device::Backend&)>;

struct Case {
  Plan plan;
  tensor::Shape x, weight, y;
};

struct Products {
  std::vector<float> y, dx, dw, dbias;
};

Products run(device::Backend& backend, const Case& c, const std::vector<float>& x_values, const std::vector<float>& w_values,
             const std::vector<float>& dy_values) {
  const auto op = c.plan(backend);
  const int64_t outputs = c.y.back();
  const DeviceBlock x(backend, c.x, x_values), w(backend, c.weight, w_values), dy(backend, c.y, dy_values);
  const DeviceBlock bias(backend, {outputs}, test::noise(9, outputs));
  const DeviceBlock y(backend, c.y), dx(backend, c.x), dw(backend, c.weight), dbias(backend, {outputs});
  const auto packed = backend.allocate(op->packed_weight_bytes() + 64);
  const auto gradient = backend.allocate(op->packed_gradient_bytes() + 64);
  const auto workspace = backend.allocate(op->workspace_bytes() + 64);
  op->pack_weight(w, packed->data(), workspace->data());
  op->forward(x, {w, packed->data()}, bias, y, workspace->data());
  op->backward_input(dy, {w, packed->data()}, dx, workspace->data());
  for (const bool accumulate : {false, true})
    op->backward_weight(x, dy, {dw, gradient->data()}, dbias, accumulate, workspace->data());
  if (op->packed_gradient_bytes() > 0) op->unpack_gradient(gradient->data(), dw, workspace->data());
  return {y.values(), dx.values(), dw.values(), dbias.values()};
}

void check_near(const std::vector<float>& found, const std::vector<float>& wanted, double tolerance) {
  double largest = 0;
  for (float x : wanted) largest = std::max(largest, std::abs(static_cast<double>(x)));
  REQUIRE(found.size() == wanted.size());
  for (size_t i = 0; i < found.size(); ++i)
    CHECK(std::abs(static_cast<double>(found[i]) - static_cast<double>(wanted[i])) <= tolerance * largest);
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = [] {
    std::vector<Case> list;
    for (const int64_t groups : {1, 3}) {
      const device::ConvolutionSpec spec{7, 5, 6, 7, 5, 9, {3, 3}, {1, 1}, {1, 1}, 1, 1, 1, 1, groups, true, true};
      list.push_back(
          {[spec](device::Backend& b) { return b.convolution(spec, {4}); }, {4, 7, 5, 6}, {9, 6 / groups, 3, 3}, {4, 7, 5, 9}});
    }
    list.push_back({[](device::Backend& b) { return b.linear({37, 21, true, true}, {13}); }, {13, 37}, {21, 37}, {13, 21}});
    list.push_back({[](device::Backend& b) { return b.linear({128, 256, true, true}, {64}); }, {64, 128}, {256, 128}, {64, 256}});
    return list;
  }();
  return all;
}

}  // namespace

TEST_CASE("bf16: products of numbers that bf16 has are those of f32, others are off by its rounding") {
  for (const int threads : {1, 2}) {
    const auto narrow = narrow_cpu(threads);
    if (!narrow) return;
    const auto plain = test::cpu(threads);
    for (const Case& c : cases()) {
      const std::vector<float> x = test::noise(1, c.x.elements()), w = test::noise(2, c.weight.elements());
      const std::vector<float> dy = test::noise(3, c.y.elements());
      const std::vector<float> x8 = all_rounded(x), w8 = all_rounded(w), dy8 = all_rounded(dy);
      const Products wanted = run(*plain, c, x8, w8, dy8);
      const Products same = run(*narrow, c, x8, w8, dy8);
      const Products near = run(*narrow, c, x, w, dy);
      check_near(same.y, wanted.y, 1e-6);
      check_near(same.dx, wanted.dx, 1e-6);
      check_near(same.dw, wanted.dw, 1e-6);
      check_near(same.dbias, wanted.dbias, 1e-6);
      CHECK(near.y == same.y);  // the factors are rounded to the nearest, ties to even, and nothing else is
      CHECK(near.dx == same.dx);
      CHECK(near.dw == same.dw);
    }
  }
}

TEST_CASE("a precision that a CPU has not is refused, with one that it has") {
  try {
    device::open_backend("cpu", {.precision = Precision::tf32});
    FAIL("tf32 on a CPU");
  } catch (const base::ConfigError& error) {
    CHECK(std::string(error.what()).find("train.precision") != std::string::npos);
    CHECK(std::string(error.what()).find("bf16") != std::string::npos);
  }
}
