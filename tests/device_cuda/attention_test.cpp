// Attention on an emulated GPU: samples that share calls, sequences that are cut into tiles, and what it takes.
#include "tests/device_cuda/machine.h"
#include "tests/support/device_block.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>

using namespace gpipe;
using namespace gpipe::test;

namespace {

using Floats = std::vector<float>;

/// By sample: what forward and backward wrote.
struct Results {
  std::vector<Floats> context, logsumexp, dquery, dpairs;
};

Floats slice(const Floats& all, int64_t from, int64_t count) { return {all.begin() + from, all.begin() + from + count}; }

std::vector<Floats> by_sample(const Floats& all, int64_t samples) {
  std::vector<Floats> parts;
  const int64_t each = static_cast<int64_t>(all.size()) / samples;
  for (int64_t n = 0; n < samples; ++n) parts.push_back(slice(all, n * each, each));
  return parts;
}

/// Samples first, first + 1, ... of made-up ones: a query's rows by themselves, a key's and its value's side by side. Tokens are
/// ids below 4; the last sample's are all of the id that is not seen, if one is.
Results run(device::Backend& backend, const device::AttentionSpec& spec, int64_t first, int64_t samples) {
  const int64_t width = spec.heads * spec.head_dim, queries = spec.queries * width, pairs = spec.keys * 2 * width;
  const auto of = [&](uint64_t seed, int64_t each) {
    return slice(noise(seed, (first + samples) * each), first * each, samples * each);
  };
  const DeviceBlock query(backend, {samples, spec.queries, width}, of(1, queries));
  const DeviceBlock pair(backend, {samples, spec.keys, 2 * width}, of(2, pairs));
  const DeviceBlock dcontext(backend, query.view().shape, of(3, queries)), ids(backend, {samples, spec.keys});
  const DeviceBlock context(backend, query.view().shape), logsumexp(backend, {samples, spec.heads, spec.queries});
  std::vector<int32_t> tokens;
  for (const float x : of(4, spec.keys)) tokens.push_back(static_cast<int32_t>(2 * x + 2));
  if (first + samples == 5)
    std::fill(tokens.end() - spec.keys, tokens.end(), static_cast<int32_t>(std::max<int64_t>(spec.padding, 0)));
  tensor::TensorView seen = ids.view();
  seen.dtype = tensor::DType::i32;
  write_bytes(backend, tokens.data(), seen.bytes(), seen.data);
  const auto op = backend.attention(spec, {samples});
  const auto workspace = backend.allocate(op->workspace_bytes());
  const device::DropoutKey mask{.seed = 4, .step = 2, .node = 7, .first_sample = 11 + first};
  float* keys = pair.view().f32();
  const device::AttentionInputs in{{query.view().f32(), width},
                                   {keys, 2 * width},
                                   {keys + width, 2 * width},
                                   spec.padding >= 0 ? seen : tensor::TensorView{},
                                   spec.dropout > 0 ? &mask : nullptr};
  op->forward(in, context, logsumexp, workspace->data());
  op->backward(in, context, logsumexp, dcontext, workspace->data());
  return {by_sample(context.values(), samples), by_sample(logsumexp.values(), samples), by_sample(query.values(), samples),
          by_sample(pair.values(), samples)};
}

void check_close(const std::vector<Floats>& found, const std::vector<Floats>& wanted) {
  REQUIRE(found.size() == wanted.size());
  double worst = 0, largest = 1;
  for (size_t n = 0; n < found.size(); ++n)
    for (size_t i = 0; i < found[n].size(); ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(wanted[n][i])));
      worst = std::max(worst, std::abs(static_cast<double>(found[n][i]) - static_cast<double>(wanted[n][i])));
    }
  CHECK(worst <= 2e-4 * largest);
}

/// Calls of a forward and a backward that the device has to start.
int64_t calls(device::Backend& backend, const device::AttentionSpec& spec, int64_t samples) {
  run(backend, spec, 0, samples);  // what is made on first use is made now
  const auto before = emulated::coverage();
  run(backend, spec, 0, samples);
  int64_t count = 0;
  for (const auto& [name, times] : emulated::coverage())
    if (name == "cublasGemmBatchedEx" || name == "gpipe_emulated_launch") count += times - before.at(name);
  return count;
}

/// Of which a group has two samples, and of which a sample takes two tiles.
constexpr device::AttentionSpec k_two_samples{.heads = 2, .head_dim = 4, .queries = 1000, .keys = 902};
constexpr device::AttentionSpec k_two_tiles{.heads = 2, .head_dim = 4, .queries = 1500, .keys = 1500};

}  // namespace

TEST_CASE("a sample has the same bits alone and beside others, in one group of samples and in several") {
  std::vector<device::AttentionSpec> specs = {
      {.heads = 3, .head_dim = 5, .queries = 7, .keys = 9},
      {.heads = 2, .head_dim = 8, .queries = 6, .keys = 6, .causal = true, .padding = 1},
      {.heads = 2, .head_dim = 4, .queries = 13, .keys = 70, .dropout = 0.3, .padding = 2},
      {.heads = 4, .head_dim = 4, .queries = 33, .keys = 33, .causal = true, .dropout = 0.2, .padding = 3}};
  specs.push_back(k_two_samples);
  specs.back().dropout = 0.2;
  specs.back().padding = 1;
  specs.push_back(k_two_tiles);
  specs.back().causal = true;
  const Machine machine({.delay_us = 0});
  for (const device::Precision precision : {device::Precision::f32, device::Precision::tf32})
    for (const device::AttentionSpec& spec : specs) {
      const bool large = spec.queries > 100;
      if (large && precision == device::Precision::tf32) continue;
      CAPTURE(spec.queries);
      const auto backend = gpu(0, {.precision = precision});
      const Results together = run(*backend, spec, 0, 5);
      for (int64_t n = 0; n < 5; n += large ? 2 : 1) {
        const Results alone = run(*backend, spec, n, 1);
        const auto at = static_cast<size_t>(n);
        CHECK(alone.context[0] == together.context[at]);
        CHECK(alone.logsumexp[0] == together.logsumexp[at]);
        CHECK(alone.dquery[0] == together.dquery[at]);
        CHECK(alone.dpairs[0] == together.dpairs[at]);
      }
    }
}

TEST_CASE("groups of samples and tiles of queries compute what a CPU does") {
  for (device::AttentionSpec spec : {k_two_samples, k_two_tiles})
    for (const bool causal : {false, true}) {
      if (causal && spec.keys != spec.queries) continue;
      spec.causal = causal;
      spec.dropout = 0.1;
      spec.padding = 2;
      const Machine machine({.delay_us = 0});
      const Results found = run(*gpu(), spec, 2, 3), wanted = run(*cpu(), spec, 2, 3);
      check_close(found.context, wanted.context);
      check_close(found.logsumexp, wanted.logsumexp);
      check_close(found.dquery, wanted.dquery);
      check_close(found.dpairs, wanted.dpairs);
    }
}

TEST_CASE("calls are by the group of samples and the tile of queries, not by the sample") {
  const Machine machine({.delay_us = 0});
  const auto backend = gpu();
  const device::AttentionSpec small{.heads = 3, .head_dim = 5, .queries = 7, .keys = 9, .causal = true};
  const int64_t of_one = calls(*backend, small, 1);
  CHECK(of_one == 4 + 8);  // two products and two kernels; five products and three kernels
  CHECK(calls(*backend, small, 40) == of_one);
  CHECK(calls(*backend, k_two_samples, 2) == of_one);
  CHECK(calls(*backend, k_two_samples, 3) == 2 * of_one);
  CHECK(calls(*backend, k_two_tiles, 1) == 2 * of_one - 1);  // what replaces the keys comes once
}

TEST_CASE("attention's memory grows neither with the square of the length nor with the samples beyond a group") {
  const Machine machine;
  const auto backend = gpu();
  const auto bytes = [&](int64_t length, int64_t samples) {
    return backend->attention({.heads = 16, .head_dim = 64, .queries = length, .keys = length}, {samples})->workspace_bytes();
  };
  CHECK(bytes(512, 64) < size_t{64} << 20);
  CHECK(bytes(65536, 2) < 2 * bytes(32768, 2) + 4096);
  CHECK(bytes(64, 2) < 2 * bytes(64, 1) + 4096);
  CHECK(bytes(64, 100000) == bytes(64, 1000));
  CHECK(bytes(64, 1000) < size_t{65} << 20);
  CHECK(backend->attention({.heads = 2, .head_dim = 64, .queries = 1, .keys = 5000}, {1000})->workspace_bytes() < size_t{65}
                                                                                                                      << 20);
}
