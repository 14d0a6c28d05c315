// What single ops promise beyond their arithmetic: masks, ties, NaN, running averages, threads.
#include "core/base/error.h"
#include "tests/support/device_block.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

using namespace gpipe;
using namespace gpipe::test;
using tensor::Shape;
using tensor::TensorView;

namespace {

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

std::vector<float> part(const std::vector<float>& all, size_t begin, size_t end) {
  return {all.begin() + static_cast<std::ptrdiff_t>(begin), all.begin() + static_cast<std::ptrdiff_t>(end)};
}

}  // namespace

TEST_CASE("a dropout mask does not depend on how samples are grouped, and drops its share") {
  const auto backend = cpu();
  const auto op = backend->dropout({});
  const int64_t samples = 6, width = 1003;
  const std::vector<float> ones(static_cast<size_t>(samples * width), 1.0F);
  const DeviceBlock x(*backend, {samples, width}, ones), y(*backend, {samples, width});
  op->apply(x, y, {.seed = 1, .step = 2, .node = 3, .first_sample = 10, .p = 0.3});
  const std::vector<float> whole = y.values();
  int64_t kept = 0;
  for (float value : whole) {
    REQUIRE((value == 0.0F || value == static_cast<float>(1 / 0.7)));
    kept += value != 0.0F ? 1 : 0;
  }
  CHECK(static_cast<double>(kept) / static_cast<double>(whole.size()) == doctest::Approx(0.7).epsilon(0.03));

  const DeviceBlock small(*backend, {4, width}, part(ones, 0, 4 * static_cast<size_t>(width))), out(*backend, {4, width});
  op->apply(small, out, {.seed = 1, .step = 2, .node = 3, .first_sample = 12, .p = 0.3});
  CHECK(out.values() == part(whole, 2 * static_cast<size_t>(width), whole.size()));
  for (const device::DropoutKey& other : {device::DropoutKey{2, 2, 3, 12, 0.3}, {1, 3, 3, 12, 0.3}, {1, 2, 4, 12, 0.3}}) {
    op->apply(small, out, other);
    CHECK(out.values() != part(whole, 2 * static_cast<size_t>(width), whole.size()));
  }
}

TEST_CASE("max pooling gives the gradient to the first of equal maxima, and NaN counts as the largest") {
  const auto backend = cpu();
  const auto op = backend->pool({device::PoolSpec::Kind::max, 2, 2, 3, 1, 1, {2, 2}, {2, 2}, 0, 0, 0, 0}, {1});
  const DeviceBlock x(*backend, {1, 2, 2, 3}, {1, 5, 1, 7, 5, not_a_number, 7, 0, 9, 0, 0, 0}), y(*backend, {1, 1, 1, 3});
  const DeviceBlock dy(*backend, {1, 1, 1, 3}, {1, 2, 3}), dx(*backend, {1, 2, 2, 3});
  const auto saved = backend->allocate(op->saved_bytes(1));
  op->forward(x, y, saved->data(), nullptr);
  CHECK(y[0] == 7);
  CHECK(y[1] == 5);
  CHECK(std::isnan(y[2]));
  op->backward(dy, saved->data(), dx, nullptr);
  CHECK(dx.values() == std::vector<float>{0, 2, 0, 1, 0, 3, 0, 0, 0, 0, 0, 0});
}

TEST_CASE("NaN passes through every activation, so that divergence is seen") {
  using Kind = device::ActivationSpec::Kind;
  const auto backend = cpu();
  for (Kind kind : {Kind::relu, Kind::leaky_relu, Kind::gelu, Kind::gelu_tanh, Kind::silu, Kind::sigmoid, Kind::tanh}) {
    const auto op = backend->activation({kind});
    const DeviceBlock x(*backend, {40}, std::vector<float>(40, not_a_number)), y(*backend, {40});
    op->forward(x, y);
    for (int64_t i = 0; i < 40; ++i) CHECK(std::isnan(y[i]));
  }
}

TEST_CASE("activations stay accurate and finite far from zero") {
  using Kind = device::ActivationSpec::Kind;
  const auto backend = cpu();
  const DeviceBlock x(*backend, {8}, {-1e30F, -100, -20, -1e-6F, 1e-6F, 20, 100, 1e30F}), y(*backend, {8});
  backend->activation({Kind::tanh})->forward(x, y);
  CHECK(y.values() == std::vector<float>{-1, -1, -1, -1e-6F, 1e-6F, 1, 1, 1});
  backend->activation({Kind::gelu})->forward(x, y);
  CHECK(y[7] == 1e30F);
  CHECK(std::abs(y[1]) < 1e-30F);
  backend->activation({Kind::sigmoid})->forward(x, y);
  CHECK(y[7] == 1);
  CHECK(y[0] < 1e-30F);
}

TEST_CASE("cross-entropy is finite for huge logits, NaN for NaN, and refuses a class that is not there") {
  const auto backend = cpu();
  const auto op = backend->cross_entropy({.classes = 3}, {3});
  const DeviceBlock logits(*backend, {3, 3}, {1e4F, -1e4F, 0, 0, 0, 1e38F, not_a_number, 1, 2}), result(*backend, {3, 2});
  const DeviceBlock targets(*backend, {3});
  const TensorView classes{targets.view().data, {3}, tensor::DType::i32};
  classes.i32()[0] = 1;
  classes.i32()[1] = 2;
  classes.i32()[2] = 0;
  op->forward(logits, classes, result, nullptr);
  CHECK(result[0] == 2e4F);
  CHECK(result[1] == 0);
  CHECK(result[2] == 0);
  CHECK(result[3] == 1);
  CHECK(std::isnan(result[4]));
  classes.i32()[2] = 3;
  CHECK_THROWS_AS(op->forward(logits, classes, result, nullptr), base::DataError);
  classes.i32()[2] = -1;
  CHECK_THROWS_AS(op->forward(logits, classes, result, nullptr), base::DataError);
}

TEST_CASE("running averages of uneven micro-batches are those of the whole mini-batch, even far from zero") {
  const auto backend = cpu();
  const int64_t channels = 5;
  const auto op = backend->batch_norm({.sample = {channels}}, {7, 4, 1});
  std::vector<float> all = noise(8, 12 * channels);
  for (float& x : all) x += 1000;
  const auto state = backend->allocate(op->state_bytes()), workspace = backend->allocate(op->workspace_bytes());
  const DeviceBlock mean(*backend, {channels}), variance(*backend, {channels});
  const DeviceBlock running_mean(*backend, {channels}), running_variance(*backend, {channels}, std::vector<float>(5, 1));
  size_t begin = 0;
  for (int64_t rows : {7, 4, 1}) {
    const size_t end = begin + static_cast<size_t>(rows * channels);
    const DeviceBlock x(*backend, {rows, channels}, part(all, begin, end)), y(*backend, {rows, channels});
    op->forward_train(x, {}, {}, y, mean, variance, workspace->data());
    op->gather(mean, variance, rows, begin == 0, state->data());
    begin = end;
  }
  op->update_running(state->data(), 0.25, running_mean, running_variance);
  for (int64_t c = 0; c < channels; ++c) {
    double sum = 0, squares = 0;
    for (int64_t r = 0; r < 12; ++r) sum += all[static_cast<size_t>(r * channels + c)];
    for (int64_t r = 0; r < 12; ++r) squares += std::pow(all[static_cast<size_t>(r * channels + c)] - sum / 12, 2);
    CHECK(running_mean[c] == doctest::Approx(0.25 * sum / 12).epsilon(1e-6));
    CHECK(running_variance[c] == doctest::Approx(0.75 + 0.25 * squares / 11).epsilon(1e-4));
  }
}

TEST_CASE("our own kernels give the same bits for one, two and three threads") {
  const Shape image{3, 33, 31, 20};
  const std::vector<float> values = noise(11, image.elements());
  std::vector<std::vector<float>> results[3];
  for (int threads = 1; threads <= 3; ++threads) {
    const auto backend = cpu(threads);
    auto& out = results[threads - 1];
    const DeviceBlock x(*backend, image, values), y(*backend, image), dx(*backend, image);
    const DeviceBlock mean(*backend, {20}), variance(*backend, {20}), scale(*backend, {20}, noise(1, 20)), shift(*backend, {20});
    const auto norm = backend->batch_norm({.sample = image.sample()}, {3});
    const auto workspace = backend->allocate(norm->workspace_bytes());
    norm->forward_train(x, scale, shift, y, mean, variance, workspace->data());
    norm->backward(x, y, scale, mean, variance, dx, mean, shift, false, workspace->data());
    for (const DeviceBlock* block : {&y, &dx, &mean, &variance, &shift}) out.push_back(block->values());
    backend->activation({device::ActivationSpec::Kind::gelu})->forward(x, y);
    backend->dropout({})->apply(y, y, {.seed = 4});
    out.push_back(y.values());
    for (const auto kind : {device::PoolSpec::Kind::max, device::PoolSpec::Kind::average_without_padding}) {
      const auto pool = backend->pool({kind, 33, 31, 20, 17, 16, {3, 3}, {2, 2}, 1, 1, 1, 1}, {3});
      const DeviceBlock small(*backend, {3, 17, 16, 20});
      const auto saved = backend->allocate(pool->saved_bytes(3));
      pool->forward(x, small, saved->data(), nullptr);
      pool->backward(small, saved->data(), dx, nullptr);
      out.push_back(small.values());
      out.push_back(dx.values());
    }
  }
  CHECK(results[0] == results[1]);
  CHECK(results[0] == results[2]);
}
