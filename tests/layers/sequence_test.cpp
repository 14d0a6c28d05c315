// Layers of sequences: what they refuse, their parameters, and that attention keeps nothing of length squared.
#include "core/base/error.h"
#include "core/device/backend.h"
#include "core/graph/init.h"
#include "tests/support/node_run.h"

#include <doctest/doctest.h>

#include <array>
#include <cmath>

using namespace gpipe;
using namespace gpipe::test;

namespace {

using tensor::DType;
using tensor::Shape;

std::string refusal(const std::string& type, const std::string& arguments, const std::vector<Shape>& inputs) {
  try {
    make_layer_of({type, arguments, inputs})->output_shape(inputs);
  } catch (const base::ConfigError& error) { return error.what(); }
  return "";
}

std::string type_refusal(const std::string& type, const std::string& arguments, const std::vector<DType>& types) {
  try {
    make_layer_of({type, arguments, {}})->output_type(types);
  } catch (const base::ConfigError& error) { return error.what(); }
  return "";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

struct Bytes {
  size_t saved, workspace;
};
Bytes bytes_of_attention(const std::string& arguments, const std::vector<Shape>& inputs, int64_t samples) {
  const auto backend = device::open_backend("cpu", {1, {}});
  const auto layer = make_layer_of({"attention", arguments, inputs});
  const std::array<bool, 2> wanted{true, true};
  const auto operation =
      layer->plan({*backend, {samples}, inputs, layer->output_shape(inputs), std::span(wanted.data(), inputs.size())});
  return {operation->saved_bytes(samples), operation->workspace_bytes()};
}

}  // namespace

TEST_CASE("attention keeps the projections, the context and a number a query, and works in memory linear in the length") {
  const int64_t samples = 2, channels = 64, heads = 4;
  Bytes before{};
  for (const int64_t length : {512, 1024, 2048, 4096}) {
    const Bytes bytes = bytes_of_attention("{heads: 4, dropout: 0.1, causal: true}", {{length, channels}}, samples);
    CHECK(bytes.saved == static_cast<size_t>(samples * length * (4 * channels + heads)) * sizeof(float));
    // The gradient of the context of all heads, that of a head's queries, and what a tile and the linear maps take.
    CHECK(bytes.workspace < static_cast<size_t>(samples * length * channels + length * 17) * sizeof(float) + 600'000);
    if (before.workspace > 0) CHECK(bytes.workspace <= 2 * before.workspace);
    before = bytes;
  }
  const Bytes cross = bytes_of_attention("{heads: 4}", {{32, channels}, {160, channels}}, samples);
  CHECK(cross.saved == static_cast<size_t>(samples * (2 * 32 * channels + 2 * 160 * channels + 32 * heads)) * sizeof(float));
}

TEST_CASE("attention has torch.nn.MultiheadAttention's parameters, their shapes and starts") {
  const std::vector<Shape> inputs = {{5, 12}};
  const auto parameters = make_layer_of({"attention", "{heads: 3}", inputs})->parameters(inputs);
  REQUIRE(parameters.size() == 4);
  const std::array<std::string, 4> names{"in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"};
  const std::array<Shape, 4> shapes{Shape{36, 12}, Shape{36}, Shape{12, 12}, Shape{12}};
  for (size_t i = 0; i < 4; ++i) {
    CHECK(parameters[i].name == names[i]);
    CHECK(parameters[i].shape == shapes[i]);
    CHECK(parameters[i].decays == (i % 2 == 0));
  }
  CHECK(parameters[0].init.magnitude == doctest::Approx(std::sqrt(6.0 / (36 + 12))));
  CHECK(parameters[2].init.magnitude == doctest::Approx(1 / std::sqrt(12.0)));
  const auto wide = make_layer_of({"attention", "{heads: 2, head_dim: 20, bias: false}", inputs})->parameters(inputs);
  REQUIRE(wide.size() == 2);
  CHECK(wide[0].shape == Shape{120, 12});
  CHECK(wide[1].shape == Shape{12, 40});
}

TEST_CASE("the vectors of an embedding start normal, that of padding at zero") {
  const std::vector<Shape> inputs = {{5}};
  const auto all =
      make_layer_of({"embedding", "{num_embeddings: 40, embedding_dim: 50, padding_idx: 3}", inputs})->parameters(inputs);
  REQUIRE(all.size() == 1);
  Floats values(2000);
  graph::initialise(all[0], "embedding_1.weight", 1, values);
  double squares = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    CHECK((values[i] == 0) == (i / 50 == 3));
    squares += static_cast<double>(values[i] * values[i]);
  }
  CHECK(squares / (39 * 50) == doctest::Approx(1).epsilon(0.1));
}

TEST_CASE("causal attention counts half of what full attention multiplies") {
  const std::vector<Shape> inputs = {{1000, 8}};
  const auto flops = [&](const std::string& arguments) {
    const graph::Cost cost = make_layer_of({"attention", arguments, inputs})->cost(inputs, inputs[0]);
    return cost.forward_flops - 2 * 4 * 8 * 8 * 1000;  // without the four maps
  };
  CHECK(flops("{heads: 2}") == 2 * 2 * 1000 * 1000 * 8);
  CHECK(flops("{heads: 2, causal: true}") == 2 * 1000 * 1000 * 8);
}

TEST_CASE("layers of sequences refuse shapes and types that do not fit") {
  CHECK(contains(refusal("attention", "{heads: 4}", {{5, 6}}), "set head_dim"));
  CHECK(contains(refusal("attention", "{heads: 2}", {{5, 6}, {4, 8}}), "[4, 8]"));
  CHECK(contains(refusal("attention", "{heads: 2, causal: true}", {{5, 6}, {4, 6}}), "memory [4, 6]"));
  CHECK(contains(refusal("attention", "{heads: 2, padding: 0}", {{5, 6}, {4, 6}, {5}}), "[5]"));
  CHECK(contains(refusal("attention", "{heads: 2, padding: 0}", {{5, 6}}), "found 1 inputs"));
  CHECK(contains(refusal("attention", "{heads: 2}", {{5, 6}, {5, 6}, {5}}), "found 3 inputs"));
  CHECK(contains(refusal("embedding", "{num_embeddings: 3, embedding_dim: 2}", {{5, 6}}), "[5, 6]"));
  CHECK(contains(refusal("positions", "{max_length: 4}", {{5, 6}}), "max_length 4"));
  CHECK(contains(refusal("shift_tokens", "{start: 1, padding: 0}", {{5, 6}}), "[5, 6]"));
  CHECK(contains(type_refusal("attention", "{heads: 1, padding: 0}", {DType::f32, DType::f32}), "token ids"));
  CHECK(contains(type_refusal("attention", "{heads: 1}", {DType::i32}), "numbers"));
  CHECK(contains(type_refusal("embedding", "{num_embeddings: 3, embedding_dim: 2}", {DType::f32}), "token ids"));
  CHECK(contains(type_refusal("shift_tokens", "{start: 1, padding: 0}", {DType::f32}), "token ids"));
  CHECK(contains(type_refusal("linear", "{out_features: 3}", {DType::i32}), "embedding"));
}

TEST_CASE("an id for padding must be one of the embedding's, and sinusoidal positions have no start") {
  const auto problems_of = [](const std::string& type, const std::string& arguments) {
    const OpCase c{type, arguments, {}};
    base::Problems problems;
    CHECK(layer_type(type).make(c.tree(), type, problems) == nullptr);
    return problems.errors().empty() ? std::string() : problems.errors()[0];
  };
  CHECK(contains(problems_of("embedding", "{num_embeddings: 3, embedding_dim: 2, padding_idx: 3}"), "embedding.padding_idx"));
  CHECK(contains(problems_of("positions", "{kind: sinusoidal, init: zeros}"), "positions.init"));
}
