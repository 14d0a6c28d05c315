// Buckets: one set of weights, mini-batches of other lengths. The same bits on every partition, and the numbers of the same
// samples padded to the widest.
#include "app/yaml_tree.h"
#include "core/base/error.h"
#include "core/pipeline/predict.h"
#include "tests/pipeline/exactness.h"
#include "tests/support/bucket_run.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

using namespace gpipe;
using pipeline::Rematerialize;
using test::options;

namespace {

// As k_token_network, without dropout, and no attention sees padding of the source; learned positions for the longest.
const char* const k_masked = R"(
- embedding: {num_embeddings: 9, embedding_dim: 6, padding_idx: 0}
- positions:
  name: source
- attention: {heads: 2, padding: 0}
  inputs: [source, input]
- add:
  inputs: [attention_1, source]
- layer_norm: {}
  name: memory
- shift_tokens: {start: 1, padding: 0}
  inputs: [target]
- embedding: {num_embeddings: 9, embedding_dim: 6}
- positions: {max_length: 20}
- residual:
    body:
    - layer_norm
    - attention: {heads: 3, causal: true}
  name: query
- attention: {heads: 2, padding: 0}
  inputs: [query, memory, input]
  name: crossed
- add:
  inputs: [crossed, query]
- linear: {out_features: 17}
- gelu
- linear: {out_features: 9}
)";

/// Loss, gradients and results of one step that changes nothing.
struct OneStep {
  OneStep(const test::BucketNetworks& networks, const pipeline::PipelineOptions& options, test::BucketBatch made) {
    const auto plan = networks.plan(options, 0);
    pipeline::Engine engine(*plan);
    base::Problems problems;
    const auto optimizer = train::make_optimizer(app::parse_yaml("sgd: {momentum: 0}", "optimizer"), "optimizer", problems);
    test::initialise(engine, *optimizer, 3);
    const std::vector<device::Update> rules(engine.parameter_count(), device::SgdUpdate{});
    loss = engine.train(made.view(), rules, 0).loss;
    for (const pipeline::StateTensor* tensor : engine.tensors())
      gradients.emplace_back(tensor->gradient.f32(), tensor->gradient.f32() + tensor->gradient.elements());
    results = made.results;
  }
  double loss = 0;
  std::vector<std::vector<float>> gradients;
  std::vector<float> results;
};

}  // namespace

TEST_CASE("mini-batches of several buckets leave the same bits for every K, schedule and recompute policy") {
  const test::BucketNetworks networks(test::k_token_network);
  for (const int micro_batches : {2, 3}) {
    const test::BucketBits unpiped = test::run_buckets(networks, options(1, micro_batches, Rematerialize::none), 10);
    REQUIRE(std::isfinite(unpiped.numbers.back()));
    for (const auto& schedule : pipeline::schedule_types())
      for (const int partitions : {1, 2, 3}) {
        if (std::string(schedule.name) == "interleaved" && micro_batches % partitions != 0) continue;
        for (const Rematerialize policy : {Rematerialize::full, Rematerialize::none, Rematerialize::keep_first}) {
          CAPTURE(fmt::format("{} K={} M={} policy={}", schedule.name, partitions, micro_batches, static_cast<int>(policy)));
          CHECK(test::run_buckets(networks, options(partitions, micro_batches, policy, schedule.name), 10) == unpiped);
        }
      }
  }
}

TEST_CASE("what a memory limit lets rematerialize: auto keep holds for every bucket") {
  const test::BucketNetworks networks(test::k_token_network);
  const test::BucketBits unpiped = test::run_buckets(networks, options(1, 4, Rematerialize::none), 5);
  const auto most = [&](Rematerialize policy) { return networks.plan(options(2, 4, policy))->stages[0].memory.total(); };
  const size_t full = most(Rematerialize::full), none = most(Rematerialize::none);
  REQUIRE(full < none);
  auto o = options(2, 4, Rematerialize::automatic);
  o.memory_limit = base::Tree::scalar(std::to_string((full + none) / 2));
  CHECK(test::run_buckets(networks, o, 5) == unpiped);
}

TEST_CASE("a narrower bucket gives the loss and the gradients of the same samples padded to the widest") {
  const test::BucketNetworks networks(k_masked);
  for (const int bucket : {1, 2}) {
    CAPTURE(bucket);
    const OneStep narrow(networks, options(2, 3, Rematerialize::none), test::BucketBatch(bucket, bucket, bucket));
    const OneStep padded(networks, options(1, 3, Rematerialize::none), test::BucketBatch(bucket, 0, bucket));
    // Sums over more rows of zeros are grouped otherwise: equal to within rounding.
    CHECK(narrow.loss == doctest::Approx(padded.loss).epsilon(1e-6));
    for (size_t i = 0; i < 2 * test::BucketBatch::valid; ++i)
      CHECK(narrow.results[i] == doctest::Approx(padded.results[i]).epsilon(1e-5));
    REQUIRE(narrow.gradients.size() == padded.gradients.size());
    for (size_t p = 0; p < narrow.gradients.size(); ++p) {
      REQUIRE(narrow.gradients[p].size() == padded.gradients[p].size());
      for (size_t i = 0; i < narrow.gradients[p].size(); ++i)
        CHECK(narrow.gradients[p][i] == doctest::Approx(padded.gradients[p][i]).epsilon(1e-4).scale(0.01));
    }
  }
}

TEST_CASE("the learned positions that a narrower bucket does not reach get a gradient of zero") {
  const test::BucketNetworks networks(k_masked);
  const OneStep step(networks, options(1, 2, Rematerialize::none), test::BucketBatch(2, 2, 1));
  const auto& names = networks.all[0].nodes[1].parameters;
  REQUIRE(names.size() == 1);
  REQUIRE(names[0].shape == tensor::Shape{9, 6});
  CHECK(networks.all[2].nodes[1].parameters[0].shape == tensor::Shape{9, 6});
  const std::vector<float>& gradient = step.gradients[1];
  REQUIRE(gradient.size() == 54);
  CHECK(std::any_of(gradient.begin(), gradient.begin() + 24, [](float g) { return g != 0; }));
  CHECK(std::all_of(gradient.begin() + 24, gradient.end(), [](float g) { return g == 0; }));
}

TEST_CASE("buckets take no memory but the widest's, have its cuts, and a step of a narrower one is shorter") {
  const test::BucketNetworks networks(test::k_token_network);
  const auto o = options(3, 4, Rematerialize::none, "1f1b");
  const auto plan = networks.plan(o);
  const auto alone = pipeline::make_plan(networks.all[0], {o, test::k_bucket_batch, 1, {}});
  REQUIRE(plan->buckets() == 3);
  CHECK(alone->buckets() == 1);
  CHECK(plan->arena_bytes() == alone->arena_bytes());
  for (size_t stage = 0; stage < plan->stages.size(); ++stage) {
    CHECK(plan->stages[stage].memory.total() == alone->stages[stage].memory.total());
    CHECK(plan->stages[stage].memory.packed == alone->stages[stage].memory.packed);
  }
  double before = pipeline::predict(*plan).step_seconds();
  for (int bucket = 1; bucket < 3; ++bucket) {
    const pipeline::Plan& narrower = plan->bucket(bucket);
    CHECK(narrower.boundaries == plan->boundaries);
    CHECK(narrower.edges.size() == plan->edges.size());
    for (size_t i = 0; i < narrower.edges.size(); ++i) {
      CHECK(narrower.edges[i].offset == plan->edges[i].offset);
      CHECK(narrower.edges[i].slots == plan->edges[i].slots);
      CHECK(narrower.edges[i].slot_bytes <= plan->edges[i].slot_bytes);
    }
    const double seconds = pipeline::predict(narrower).step_seconds();
    CHECK(seconds < before);
    before = seconds;
  }
  CHECK_NOTHROW(pipeline::Engine{*plan});
}

TEST_CASE("packed copies of convolutions are a bucket's own: counted, and packed after each update") {
  const test::BucketNetworks networks(R"(
- embedding: {num_embeddings: 9, embedding_dim: 8}
  name: memory
- shift_tokens: {start: 1, padding: 0}
  inputs: [target]
- embedding: {num_embeddings: 9, embedding_dim: 8}
  name: query
- attention: {heads: 2, padding: 0}
  inputs: [query, memory, input]
- reshape: {shape: [-1, 1, 8]}
- conv2d: {out_channels: 16, kernel_size: 1}
- relu
- reshape: {shape: [-1, 16]}
- linear: {out_features: 9}
)");
  const auto o = options(2, 2, Rematerialize::none);
  const auto plan = networks.plan(o, 0);
  const auto alone = pipeline::make_plan(networks.all[0], {o, test::k_bucket_batch, 0, {}});
  size_t packed = 0, packed_alone = 0, own = 0;
  for (size_t stage = 0; stage < 2; ++stage) {
    packed += plan->stages[stage].memory.packed;
    packed_alone += alone->stages[stage].memory.packed;
    for (int bucket = 1; bucket < 3; ++bucket)
      for (const auto& operation : plan->bucket(bucket).stages[stage].operations)
        if (!operation->packs_as_widest()) own += operation->packed_weight_bytes() + operation->packed_gradient_bytes();
  }
  CHECK(own > 0);
  CHECK(packed >= packed_alone + own);
  CHECK(test::run_buckets(networks, o, 6) == test::run_buckets(networks, options(1, 2, Rematerialize::full), 6));

  pipeline::Engine engine(*plan);
  base::Problems problems;
  const auto optimizer = train::make_optimizer(app::parse_yaml("sgd: {momentum: 0}", "optimizer"), "optimizer", problems);
  test::initialise(engine, *optimizer, 3);
  for (int step = 0; step < 4; ++step) {
    const std::vector<device::Update> rules(engine.parameter_count(), optimizer->rule(step, 0.5, true));
    test::BucketBatch made(step % 2, step % 2, step);
    engine.train(made.view(), rules, 0);
    test::BucketBatch narrow(2, 2, 50), padded(2, 0, 50);
    engine.evaluate(narrow.view());
    engine.evaluate(padded.view());
    for (size_t i = 0; i < 2 * test::BucketBatch::valid; ++i)
      CHECK(narrow.results[i] == doctest::Approx(padded.results[i]).epsilon(1e-5));
  }
}

TEST_CASE("weights that depend on the length are refused, with the node and both shapes") {
  const char* const by_length = R"(
- embedding: {num_embeddings: 9, embedding_dim: 6}
- transpose: {swap: [0, 1]}
- linear: {out_features: 6}
  name: memory
- shift_tokens: {start: 1, padding: 0}
  inputs: [target]
- embedding: {num_embeddings: 9, embedding_dim: 6}
  name: query
- attention: {heads: 2}
  inputs: [query, memory]
- linear: {out_features: 9}
)";
  CHECK_THROWS_WITH_AS(
      test::BucketNetworks{by_length},
      doctest::Contains("memory: its weight is [6, 6] here and [6, 9] for the widest samples, but buckets share"),
      base::ConfigError);
}
