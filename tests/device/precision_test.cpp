// Products with factors of fewer bits: the same as f32's of factors that have few bits anyway, and the rounding itself.
#include "core/base/error.h"
#include "core/device/functors/rounding.h"
#include "tests/support/device_block.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>

using namespace gpipe;
using device::Precision;
using test::DeviceBlock;

namespace {

/// Null, and says so, where the processor has no bf16.
std::unique_ptr<device::Backend> narrow_cpu(Precision precision, int threads) {
  try {
    auto backend = device::open_backend("cpu", {.threads = threads, .precision = precision});
    backend->attach_thread();
    return backend;
  } catch (const base::ConfigError& error) {
    REQUIRE(precision == Precision::bf16);
    MESSAGE("skipped: " << error.what());
    return nullptr;
  }
}

/// The compiler's own.
float rounded_to_f16(float x) { return static_cast<float>(static_cast<_Float16>(x)); }

/// Of finite numbers, by doubles: the multiple of the format's last place at x that is nearest, ties to even.
float rounded_to_fraction(float x, int bits) {
  const double place = std::ldexp(1.0, std::max(std::ilogb(x), -126) - bits);
  return x == 0 ? x : static_cast<float>(std::nearbyint(static_cast<double>(x) / place) * place);
}

std::vector<float> all_rounded(std::vector<float> values, Precision precision) {
  for (float& x : values)
    x = precision == Precision::f16 ? rounded_to_f16(x) : rounded_to_fraction(x, precision == Precision::bf16 ? 7 : 10);
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
    // Edges of the packed weights' tiles.
    list.push_back({[](device::Backend& b) { return b.linear({131, 203, true, true}, {5}); }, {5, 131}, {203, 131}, {5, 203}});
    return list;
  }();
  return all;
}

}  // namespace

TEST_CASE("products with factors of fewer bits are f32's of the rounded factors") {
  for (const Precision precision : {Precision::bf16, Precision::tf32, Precision::f16})
    for (const int threads : {1, 2}) {
      CAPTURE(std::string(device::name_of(precision)));
      const auto narrow = narrow_cpu(precision, threads);
      if (!narrow) continue;
      const auto plain = test::cpu(threads);
      for (const Case& c : cases()) {
        const std::vector<float> x = test::noise(1, c.x.elements()), w = test::noise(2, c.weight.elements());
        const std::vector<float> dy = test::noise(3, c.y.elements());
        const std::vector<float> few_x = all_rounded(x, precision), few_w = all_rounded(w, precision);
        const std::vector<float> few_dy = all_rounded(dy, precision);
        const Products wanted = run(*plain, c, few_x, few_w, few_dy);
        const Products same = run(*narrow, c, few_x, few_w, few_dy);
        const Products near = run(*narrow, c, x, w, dy);
        const double tolerance = precision == Precision::bf16 ? 1e-6 : 0;  // kernels of its own; the others' are f32's
        check_near(same.y, wanted.y, tolerance);
        check_near(same.dx, wanted.dx, tolerance);
        check_near(same.dw, wanted.dw, tolerance);
        CHECK(near.y == same.y);  // the factors are rounded to the nearest, ties to even, and nothing else is
        CHECK(near.dx == same.dx);
        CHECK(near.dw == same.dw);
        const Products wide = run(*plain, c, x, w, dy);
        CHECK(near.y != wide.y);
        check_near(near.dbias, wide.dbias, 1e-6);
      }
    }
}

TEST_CASE("f16: a factor beyond its largest number makes the product infinite, also where it is the weight") {
  const auto narrow = narrow_cpu(Precision::f16, 1);
  for (const Case& c : cases()) {
    const auto filled = [&](const tensor::Shape& shape, float value) {
      return std::vector<float>(static_cast<size_t>(shape.elements()), value);
    };
    const std::vector<float> x = filled(c.x, 1), w = filled(c.weight, 1), dy = filled(c.y, 1);
    CHECK(std::isfinite(run(*narrow, c, filled(c.x, 65519), w, dy).y[0]));
    CHECK(std::isinf(run(*narrow, c, filled(c.x, 65520), w, dy).y[0]));
    CHECK(std::isinf(run(*narrow, c, x, filled(c.weight, 65520), dy).y[0]));
    CHECK(std::isinf(run(*narrow, c, x, filled(c.weight, 65520), dy).dx[0]));
    CHECK(std::isinf(run(*narrow, c, x, w, filled(c.y, 65520)).dw[0]));
  }
}

TEST_CASE("tf32 and bf16 numbers are f32's with fewer bits of fraction") {
  using device::Bf16, device::Tf32;
  CHECK(Tf32::nearest(1 + 0x1p-11F) == 1);  // a tie goes to the even one
  CHECK(Tf32::nearest(1 + 0x1.8p-10F) == 1 + 0x1p-9F);
  CHECK(Tf32::nearest(-0x1.002002p+0F) == -1 - 0x1p-10F);
  CHECK(Tf32::nearest(0x1.ffep+127F) == 0x1.ffcp+127F + 0x1p+117F);
  CHECK(std::isinf(Tf32::nearest(std::numeric_limits<float>::max())));
  CHECK(Tf32::nearest(0x1p-136F) == 0x1p-136F);  // the smallest there is
  CHECK(Tf32::nearest(0x1p-137F) == 0);
  CHECK(Bf16::nearest(1 + 0x1p-8F) == 1);
  CHECK(Bf16::nearest(1 + 0x1.8p-7F) == 1 + 0x1p-6F);
  CHECK(Bf16::narrow(1.0F) == 0x3F80);
  CHECK(Bf16::narrow(-2.0F) == 0xC000);
  CHECK(Bf16::widen(0x3EAB) == 0.333984375F);
  CHECK(Bf16::narrow(std::numeric_limits<float>::infinity()) == 0x7F80);
  const float sly = std::bit_cast<float>(0x7F800001U);  // a NaN whose fraction is all in the bits that go
  CHECK(std::isnan(Tf32::nearest(sly)));
  CHECK(std::isnan(Bf16::widen(Bf16::narrow(sly))));
  for (const float x : test::noise(5, 1000)) {
    CHECK(Tf32::nearest(x) == rounded_to_fraction(x, 10));
    CHECK(Bf16::nearest(x) == rounded_to_fraction(x, 7));
    CHECK(Bf16::widen(Bf16::narrow(x)) == Bf16::nearest(x));
  }
}

TEST_CASE("f16 numbers are IEEE 754's binary16") {
  using device::F16;
  CHECK(F16::nearest(65504.0F) == 65504);
  CHECK(F16::nearest(65519.996F) == 65504);
  CHECK(std::isinf(F16::nearest(65520.0F)));
  CHECK(F16::nearest(-65520.0F) == -std::numeric_limits<float>::infinity());
  CHECK(F16::nearest(0x1p-24F) == 0x1p-24F);
  CHECK(F16::nearest(0x1p-25F) == 0);
  CHECK(std::signbit(F16::nearest(-0x1p-25F)));
  CHECK(F16::nearest(0x1.8p-25F) == 0x1p-24F);
  CHECK(F16::nearest(0x1.8p-24F) == 0x1p-23F);
  CHECK(F16::nearest(0x1.ffcp-15F) == 0x1p-14F);  // from the subnormal to the normal
  CHECK(F16::nearest(1 + 0x1p-11F) == 1);
  CHECK(F16::nearest(1 + 0x1.8p-10F) == 1 + 0x1p-9F);
  CHECK(F16::narrow(1.0F) == 0x3C00);
  CHECK(F16::narrow(65520.0F) == 0x7C00);
  CHECK(F16::widen(0x3555) == 0.333251953125F);
  for (const uint32_t nan : {0x7F800001U, 0xFFC00000U}) {
    CHECK(std::isnan(F16::nearest(std::bit_cast<float>(nan))));
    CHECK(std::isnan(F16::widen(F16::narrow(std::bit_cast<float>(nan)))));
  }
}

TEST_CASE("f16: every number there is, and what lies half way between two, as the compiler has it") {
  using device::F16;
  int64_t differ = 0;
  for (uint32_t bits = 0; bits < 0x7C00; ++bits) {
    const float x = F16::widen(static_cast<uint16_t>(bits));
    const float half_way = (x + F16::widen(static_cast<uint16_t>(bits + 1))) / 2;
    differ += std::bit_cast<uint16_t>(static_cast<_Float16>(x)) != bits || F16::narrow(x) != bits ? 1 : 0;
    differ += F16::narrow(-x) != (bits | 0x8000U) || F16::widen(static_cast<uint16_t>(bits | 0x8000U)) != -x ? 1 : 0;
    for (const float y : {half_way, std::nextafter(half_way, 0.0F), std::nextafter(half_way, 1e30F)}) {
      const float wanted = rounded_to_f16(y);
      differ += F16::nearest(y) != wanted || F16::widen(F16::narrow(y)) != wanted ? 1 : 0;
      differ += F16::nearest(-y) != -wanted ? 1 : 0;
    }
  }
  CHECK(differ == 0);
}
