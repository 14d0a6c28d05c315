// Numbers that f16 has not, on an emulated GPU: they are infinite where a loss scale can notice.
#include "tests/emulated_cuda/emulated.h"
#include "tests/support/device_block.h"

#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <vector>

using namespace gpipe;
using namespace gpipe::test;
using device::Precision;
using tensor::Shape;

namespace {

struct Case {
  const char* name;
  Shape x, weight, y;
  bool by_cudnn;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all{{"linear", {3, 5}, {7, 5}, {3, 7}, false},
                                     {"convolution", {2, 4, 4, 5}, {6, 5, 1, 1}, {2, 4, 4, 6}, true},
                                     {"depthwise", {2, 4, 4, 6}, {6, 1, 1, 1}, {2, 4, 4, 6}, false}};
  return all;
}

std::unique_ptr<device::WeightedOp> plan(device::Backend& backend, const Case& c) {
  if (c.x.rank() == 2) return backend.linear({c.x[1], c.y[1], false, true}, {c.x[0]});
  device::ConvolutionSpec spec{4, 4, c.x[3], 4, 4, c.y[3], {1, 1}, {1, 1}, {1, 1}, 0, 0, 0, 0};
  spec.groups = c.x[3] / c.weight[1];
  spec.bias = false;
  return backend.convolution(spec, {c.x[0]});
}

struct Products {
  float y, dx, dw;  // of each the first element
};

/// Of tensors that are filled with one number each, in f16.
Products products(const Case& c, float x_value, float w_value, float dy_value) {
  emulated::reset({.delay_us = 0});
  Products found{};
  {
    const auto backend = device::open_backend("cuda:0", {.precision = Precision::f16});
    backend->attach_thread();
    const auto filled = [&](const Shape& shape, float value) {
      return DeviceBlock(*backend, shape, std::vector<float>(static_cast<size_t>(shape.elements()), value));
    };
    const auto op = plan(*backend, c);
    const DeviceBlock x = filled(c.x, x_value), w = filled(c.weight, w_value), dy = filled(c.y, dy_value);
    const DeviceBlock y(*backend, c.y), dx(*backend, c.x), dw(*backend, c.weight);
    const auto packed = backend->allocate(op->packed_weight_bytes() + 64);
    const auto gradient = backend->allocate(op->packed_gradient_bytes() + 64);
    const auto workspace = backend->allocate(op->workspace_bytes() + 64);
    op->pack_weight(w, packed->data(), workspace->data());
    op->forward(x, {w, packed->data()}, {}, y, workspace->data());
    op->backward_input(dy, {w, packed->data()}, dx, workspace->data());
    op->backward_weight(x, dy, {dw, gradient->data()}, {}, false, workspace->data());
    if (op->packed_gradient_bytes() > 0) op->unpack_gradient(gradient->data(), dw, workspace->data());
    found = {y[0], dx[0], dw[0]};
  }
  for (const std::string& sentence : emulated::violations()) FAIL_CHECK(sentence);
  emulated::reset();
  return found;
}

}  // namespace

TEST_CASE("f16 on a GPU: a factor beyond 65504 makes its products infinite, and only those") {
  for (const Case& c : cases()) {
    CAPTURE(c.name);
    const Products large_x = products(c, 65520, 0x1p-10F, 0x1p-10F);
    CHECK(std::isinf(large_x.y));
    CHECK(std::isfinite(large_x.dx));
    CHECK(std::isinf(large_x.dw));
    const Products large_w = products(c, 0x1p-10F, 65520, 0x1p-10F);
    CHECK(std::isinf(large_w.y));
    CHECK(std::isinf(large_w.dx));
    CHECK(std::isfinite(large_w.dw));
    const Products large_dy = products(c, 0x1p-10F, 0x1p-10F, 65520);
    CHECK(std::isfinite(large_dy.y));
    CHECK(std::isinf(large_dy.dx));
    CHECK(std::isinf(large_dy.dw));
  }
}

TEST_CASE("f16 on a GPU: what comes out of a convolution by cuDNN is f16 too, what comes out of the others is f32") {
  for (const Case& c : cases()) {
    CAPTURE(c.name);
    const Products large = products(c, 300, 300, 300);
    CHECK(std::isinf(large.y) == c.by_cudnn);
    CHECK(std::isinf(large.dx) == c.by_cudnn);
    CHECK(std::isinf(large.dw) == c.by_cudnn);
  }
}
