// Ops of sequences: refusals, memory, and the same bits for every team.
#include "core/base/error.h"
#include "tests/support/device_block.h"

#include <doctest/doctest.h>

#include <string>

using namespace gpipe;
using namespace gpipe::test;

namespace {

using tensor::Shape;
using tensor::TensorView;

TensorView ids_in(const DeviceBlock& block, const std::vector<int32_t>& ids) {
  TensorView view = block.view();
  view.dtype = tensor::DType::i32;
  std::copy(ids.begin(), ids.end(), view.i32());
  return view;
}

std::vector<int32_t> made_ids(int64_t count, int32_t below) {
  std::vector<int32_t> ids;
  for (float x : noise(21, count)) ids.push_back(static_cast<int32_t>((x + 1) / 2 * static_cast<float>(below)));
  return ids;
}

size_t attention_workspace(int64_t length, int threads) {
  return cpu(threads)->attention({.heads = 4, .head_dim = 32, .queries = length, .keys = length}, {2})->workspace_bytes();
}

}  // namespace

TEST_CASE("an id outside the vocabulary is named with its place") {
  const auto backend = cpu();
  const auto op = backend->embedding({.rows = 5, .columns = 2});
  const DeviceBlock block(*backend, {2, 3}), table(*backend, {5, 2}), y(*backend, {2, 3, 2});
  for (const int32_t bad : {5, -1}) {
    std::string message;
    try {
      op->forward(ids_in(block, {0, 1, 2, 3, bad, 4}), table, y);
    } catch (const base::DataError& error) { message = error.what(); }
    for (const std::string& part : {std::to_string(bad), std::string("position 1 of sample 1"), std::string("0..4")})
      CHECK(message.find(part) != std::string::npos);
  }
}

TEST_CASE("adding to an embedding's gradient leaves the rows of other ids as they are") {
  const auto backend = cpu();
  const auto op = backend->embedding({.rows = 4, .columns = 2, .factor = 2});
  const DeviceBlock block(*backend, {1, 3}), dy(*backend, {1, 3, 2}, {1, 2, 3, 4, 5, 6}), dtable(*backend, {4, 2});
  const TensorView ids = ids_in(block, {2, 0, 2});
  op->backward_weight(ids, dy, dtable, false);
  CHECK(dtable.values() == std::vector<float>{6, 8, 0, 0, 12, 16, 0, 0});
  dtable.view().f32()[6] = 7;
  op->backward_weight(ids, dy, dtable, true);
  CHECK(dtable.values() == std::vector<float>{12, 16, 0, 0, 24, 32, 7, 0});
}

TEST_CASE("what attention works in grows with the length, not with its square") {
  const size_t tile = attention_workspace(64, 1);
  CHECK(attention_workspace(8192, 1) - attention_workspace(4096, 1) == 4096 * (32 + 1) * sizeof(float));
  CHECK(attention_workspace(64, 3) == 3 * tile);
  CHECK(tile < 256 * 1024);
}

TEST_CASE("the ops of sequences give the same bits for one, two and three threads") {
  const int64_t samples = 3, length = 150, heads = 3, size = 20, width = heads * size, vocabulary = 40;
  std::vector<std::vector<float>> results[3];
  for (int threads = 1; threads <= 3; ++threads) {
    const auto backend = cpu(threads);
    auto& out = results[threads - 1];
    const DeviceBlock block(*backend, {samples, length});
    const TensorView ids = ids_in(block, made_ids(samples * length, static_cast<int32_t>(vocabulary)));
    const DeviceBlock table(*backend, {vocabulary, width}, noise(1, vocabulary * width)), y(*backend, {samples, length, width});
    const auto embedding = backend->embedding({.rows = vocabulary, .columns = width});
    embedding->forward(ids, table, y);
    out.push_back(y.values());
    embedding->backward_weight(ids, y, table, false);
    out.push_back(table.values());

    const DeviceBlock qkv(*backend, {samples, length, 3 * width}, noise(2, samples * length * 3 * width));
    const DeviceBlock context(*backend, {samples, length, width}), logsumexp(*backend, {samples, heads, length});
    const auto attention = backend->attention({heads, size, length, length, true, 0.2, 3}, {samples});
    const auto workspace = backend->allocate(attention->workspace_bytes());
    const device::DropoutKey mask{.seed = 4, .step = 2, .node = 7, .first_sample = 5};
    float* first = qkv.view().f32();
    const device::AttentionInputs in{{first, 3 * width}, {first + width, 3 * width}, {first + 2 * width, 3 * width}, ids, &mask};
    attention->forward(in, context, logsumexp, workspace->data());
    out.push_back(context.values());
    out.push_back(logsumexp.values());
    attention->backward(in, context, logsumexp, y, workspace->data());
    out.push_back(qkv.values());
  }
  CHECK(results[0] == results[1]);
  CHECK(results[0] == results[2]);
}
