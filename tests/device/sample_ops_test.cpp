// What node cases do not reach of the ops that came with them: masks by channel and by sample, special values, and the same bits
// for every team size.
#include "tests/support/device_block.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <set>

using namespace gpipe;
using namespace gpipe::test;
using device::DropoutSpec;

namespace {

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

std::vector<float> masked(DropoutSpec::Grain grain, const tensor::Shape& shape, const device::DropoutKey& key, int threads = 1) {
  const auto backend = cpu(threads);
  const DeviceBlock x(*backend, shape, std::vector<float>(static_cast<size_t>(shape.elements()), 1.0F)), y(*backend, shape);
  backend->dropout({grain})->apply(x, y, key);
  return y.values();
}

}  // namespace

TEST_CASE("a mask of channels is the same at all positions of a sample, and another for each sample") {
  const int64_t samples = 8, positions = 6, channels = 150;
  const device::DropoutKey key{.seed = 1, .step = 2, .node = 3, .first_sample = 4, .p = 0.3};
  const std::vector<float> y = masked(DropoutSpec::Grain::channel, {samples, 2, 3, channels}, key);
  std::set<std::vector<float>> masks;
  int64_t kept = 0;
  for (int64_t n = 0; n < samples; ++n) {
    const auto row = [&](int64_t position) {
      const auto begin = y.begin() + (n * positions + position) * channels;
      return std::vector<float>(begin, begin + channels);
    };
    for (int64_t position = 1; position < positions; ++position) CHECK(row(position) == row(0));
    for (float value : row(0)) {
      CHECK((value == 0.0F || value == static_cast<float>(1 / 0.7)));
      kept += value != 0 ? 1 : 0;
    }
    masks.insert(row(0));
  }
  CHECK(masks.size() == static_cast<size_t>(samples));
  CHECK(static_cast<double>(kept) / static_cast<double>(samples * channels) == doctest::Approx(0.7).epsilon(0.05));
}

TEST_CASE("a mask of samples keeps whole samples, by their index in the mini-batch") {
  const int64_t samples = 4000, width = 3;
  device::DropoutKey key{.seed = 5, .step = 1, .node = 2, .first_sample = 0, .p = 0.4};
  const std::vector<float> y = masked(DropoutSpec::Grain::sample, {samples, width}, key);
  int64_t kept = 0;
  for (int64_t n = 0; n < samples; ++n) {
    const float first = y[static_cast<size_t>(n * width)];
    CHECK((first == 0.0F || first == static_cast<float>(1 / 0.6)));
    for (int64_t i = 1; i < width; ++i) CHECK(y[static_cast<size_t>(n * width + i)] == first);
    kept += first != 0 ? 1 : 0;
  }
  CHECK(static_cast<double>(kept) / static_cast<double>(samples) == doctest::Approx(0.6).epsilon(0.05));
  key.first_sample = 1000;
  const std::vector<float> later = masked(DropoutSpec::Grain::sample, {samples - 1000, width}, key);
  CHECK(later == std::vector<float>(y.begin() + 1000 * width, y.end()));
}

TEST_CASE("softmax survives large numbers, and clip and softmax pass NaN on") {
  const auto backend = cpu();
  const DeviceBlock x(*backend, {3, 3}, {1e4F, 0, 1e4F, -1e30F, -1e30F, -1e30F, 1, not_a_number, 2}), y(*backend, {3, 3});
  backend->softmax()->forward(x, y);
  CHECK(y[0] == 0.5F);
  CHECK(y[1] < 1e-30F);
  for (int64_t i = 3; i < 6; ++i) CHECK(y[i] == doctest::Approx(1.0 / 3));
  for (int64_t i = 6; i < 9; ++i) CHECK(std::isnan(y[i]));
  const auto clip = backend->activation({.kind = device::ActivationSpec::Kind::clip, .low = -1, .high = 2});
  const DeviceBlock a(*backend, {5}, {-1, 2, 2.5F, -3, not_a_number}), b(*backend, {5}), d(*backend, {5}, {1, 1, 1, 1, 1});
  clip->forward(a, b);
  CHECK(b[1] == 2);
  CHECK(b[2] == 2);
  CHECK(b[3] == -1);
  CHECK(std::isnan(b[4]));
  clip->backward(a, d, d);
  CHECK(std::vector<float>(d.view().f32(), d.view().f32() + 4) == std::vector<float>{1, 1, 0, 0});  // the ends themselves pass
}

TEST_CASE("ops on samples give the same bits for every team size") {
  std::array<std::vector<std::vector<float>>, 3> results;
  const tensor::Shape image{3, 33, 31, 20};
  const std::vector<float> values = noise(1, image.elements());
  for (int threads = 1; threads <= 3; ++threads) {
    const auto backend = cpu(threads);
    auto& out = results[static_cast<size_t>(threads - 1)];
    const DeviceBlock x(*backend, image, values), y(*backend, image), dx(*backend, image);
    const DeviceBlock large(*backend, {3, 50, 47, 20}), scale(*backend, {20}, noise(2, 20)), dscale(*backend, {20});
    const auto up = backend->resample({device::ResampleSpec::Kind::bilinear, 33, 31, 20, 50, 47, {33.0 / 50, 31.0 / 47}});
    const auto own = backend->channel_scale(20);
    const auto workspace = backend->allocate(std::max(up->workspace_bytes(), own->workspace_bytes()));
    up->forward(x, large);
    up->backward(large, dx, workspace->data());
    own->apply(x, scale, y);
    own->backward_weight(x, y, dscale, false, workspace->data());
    for (const DeviceBlock* block : {&large, &dx, &y, &dscale}) out.push_back(block->values());
    const auto softmax = backend->softmax();
    softmax->forward(x, y);
    softmax->backward(y, x, dx);
    for (const DeviceBlock* block : {&y, &dx}) out.push_back(block->values());
    const device::RearrangeSpec turned{.input = {33, 31, 20}, .output = {20, 33, 31}, .axes = {2, 0, 1}};
    const DeviceBlock other(*backend, {3, 20, 33, 31});
    backend->rearrange(turned)->apply(x, other);
    out.push_back(other.values());
    for (const auto grain : {DropoutSpec::Grain::channel, DropoutSpec::Grain::sample})
      out.push_back(masked(grain, image, {.seed = 4, .p = 0.5}, threads));
  }
  CHECK(results[0] == results[1]);
  CHECK(results[0] == results[2]);
}
