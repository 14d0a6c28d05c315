// Buckets: one set of weights, mini-batches of other lengths. The same bits on every partition, and the numbers of the same
// samples padded to the widest.
#include "app/yaml_tree.h"
#include "core/base/error.h"
#include "core/base/rng.h"
#include "core/pipeline/predict.h"
#include "tests/pipeline/exactness.h"
#include "tests/support/small_run.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

using namespace gpipe;
using pipeline::Rematerialize;
using test::options;

namespace {

struct Lengths {
  int64_t source, target;
};
/// Widest first.
constexpr std::array<Lengths, 3> k_buckets{{{9, 11}, {6, 11}, {4, 5}}};
constexpr int64_t k_batch = 8, k_vocabulary = 9;

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

/// The network of each bucket on the weights of the widest.
struct Networks {
  explicit Networks(const std::string& yaml) {
    for (const Lengths& bucket : k_buckets)
      all.push_back(test::token_network_of(yaml, bucket.source, k_vocabulary, bucket.target));
    base::Problems problems;
    for (size_t i = 1; i < all.size(); ++i) graph::share_parameters(all[0], all[i], problems);
    problems.throw_if_any();
  }
  std::unique_ptr<pipeline::Plan> plan(const pipeline::PipelineOptions& options, int slots = 1) const {
    pipeline::PlanRequest request{options, k_batch, slots, {}};
    for (size_t i = 1; i < all.size(); ++i) request.narrower.push_back({&all[i], {}});
    return pipeline::make_plan(all[0], request);
  }
  std::vector<graph::Network> all;
};

/// Samples that fit into `fits`, padded to the lengths of `wide`.
struct Made {
  Made(int fits, int wide, int64_t at) : bucket(wide), step(at) {
    const base::Philox random(7, base::Purpose::test, static_cast<uint64_t>(at));
    const auto& [source, target_length] = k_buckets[static_cast<size_t>(wide)];
    const auto& [most_source, most_target] = k_buckets[static_cast<size_t>(fits)];
    const auto below = [&](size_t element, int64_t bound) { return random.below(element, static_cast<uint32_t>(bound)); };
    for (size_t n = 0; n < k_batch; ++n) {
      const int64_t tokens = 1 + below(n, most_source), answers = 1 + below(100 + n, most_target);
      for (int64_t t = 0; t < source; ++t)
        input.push_back(t < tokens ? static_cast<int32_t>(1 + below(1000 * (n + 1) + static_cast<size_t>(t), k_vocabulary - 1))
                                   : 0);
      for (int64_t t = 0; t < target_length; ++t)
        target.push_back(t < answers ? static_cast<int32_t>(below(1000 * (n + 1) + 500 + static_cast<size_t>(t), k_vocabulary))
                                     : device::k_ignored_target);
      if (n < valid) targets += answers;
    }
    results.resize(2 * k_batch);
  }
  pipeline::MiniBatch view() {
    pipeline::MiniBatch batch;
    batch.input = reinterpret_cast<std::byte*>(input.data());
    batch.target = reinterpret_cast<std::byte*>(target.data());
    batch.results = results.data();
    batch.samples = valid;
    batch.targets = targets;
    batch.step = step;
    batch.seed = 3;
    batch.bucket = bucket;
    return batch;
  }
  static constexpr int64_t valid = 7;  // the last row only fills up
  std::vector<int32_t> input, target;
  std::vector<float> results;
  int64_t targets = 0;
  int bucket;
  int64_t step;
};

struct Bits {
  std::vector<double> numbers;
  std::vector<float> tensors;
  bool operator==(const Bits&) const = default;
};

/// Steps with the buckets in turn, an evaluation of each behind.
Bits run(const Networks& networks, const pipeline::PipelineOptions& options, int steps) {
  base::Problems problems;
  const auto optimizer = train::make_optimizer(app::parse_yaml("sgd: {momentum: 0.9}", "optimizer"), "optimizer", problems);
  const auto plan = networks.plan(options);
  pipeline::Engine engine(*plan);
  test::initialise(engine, *optimizer, 3);
  Bits bits;
  constexpr std::array<int, 5> order{0, 2, 1, 1, 2};
  for (int step = 0; step < steps; ++step) {
    const int bucket = order[static_cast<size_t>(step) % order.size()];
    Made made(bucket, bucket, step);
    const std::vector<device::Update> rules(engine.parameter_count(), optimizer->rule(step, 0.05, true));
    const pipeline::StepResult result = engine.train(made.view(), rules, 1.0);
    bits.numbers.insert(bits.numbers.end(), {result.loss, result.gradient_norm, static_cast<double>(result.hits)});
  }
  for (int bucket = 0; bucket < 3; ++bucket) {
    Made made(bucket, bucket, 100);
    engine.evaluate(made.view());
    bits.tensors.insert(bits.tensors.end(), made.results.begin(), made.results.end());
  }
  for (const pipeline::StateTensor* tensor : engine.tensors()) {
    bits.tensors.insert(bits.tensors.end(), tensor->value.f32(), tensor->value.f32() + tensor->value.elements());
    for (const auto& slot : tensor->slots) bits.tensors.insert(bits.tensors.end(), slot.f32(), slot.f32() + slot.elements());
  }
  return bits;
}

/// Loss, gradients and results of one step that changes nothing.
struct OneStep {
  OneStep(const Networks& networks, const pipeline::PipelineOptions& options, Made made) {
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
  const Networks networks(test::k_token_network);
  for (const int micro_batches : {2, 3}) {
    const Bits unpiped = run(networks, options(1, micro_batches, Rematerialize::none), 10);
    REQUIRE(std::isfinite(unpiped.numbers.back()));
    for (const auto& schedule : pipeline::schedule_types())
      for (const int partitions : {1, 2, 3}) {
        if (std::string(schedule.name) == "interleaved" && micro_batches % partitions != 0) continue;
        for (const Rematerialize policy : {Rematerialize::full, Rematerialize::none, Rematerialize::keep_first}) {
          CAPTURE(fmt::format("{} K={} M={} policy={}", schedule.name, partitions, micro_batches, static_cast<int>(policy)));
          CHECK(run(networks, options(partitions, micro_batches, policy, schedule.name), 10) == unpiped);
        }
      }
  }
}

TEST_CASE("what a memory limit lets rematerialize: auto keep holds for every bucket") {
  const Networks networks(test::k_token_network);
  const Bits unpiped = run(networks, options(1, 4, Rematerialize::none), 5);
  const auto most = [&](Rematerialize policy) { return networks.plan(options(2, 4, policy))->stages[0].memory.total(); };
  const size_t full = most(Rematerialize::full), none = most(Rematerialize::none);
  REQUIRE(full < none);
  auto o = options(2, 4, Rematerialize::automatic);
  o.memory_limit = base::Tree::scalar(std::to_string((full + none) / 2));
  CHECK(run(networks, o, 5) == unpiped);
}

TEST_CASE("a narrower bucket gives the loss and the gradients of the same samples padded to the widest") {
  const Networks networks(k_masked);
  for (const int bucket : {1, 2}) {
    CAPTURE(bucket);
    const OneStep narrow(networks, options(2, 3, Rematerialize::none), Made(bucket, bucket, bucket));
    const OneStep padded(networks, options(1, 3, Rematerialize::none), Made(bucket, 0, bucket));
    // Sums over more rows of zeros are grouped otherwise: equal to within rounding.
    CHECK(narrow.loss == doctest::Approx(padded.loss).epsilon(1e-6));
    for (size_t i = 0; i < 2 * Made::valid; ++i) CHECK(narrow.results[i] == doctest::Approx(padded.results[i]).epsilon(1e-5));
    REQUIRE(narrow.gradients.size() == padded.gradients.size());
    for (size_t p = 0; p < narrow.gradients.size(); ++p) {
      REQUIRE(narrow.gradients[p].size() == padded.gradients[p].size());
      for (size_t i = 0; i < narrow.gradients[p].size(); ++i)
        CHECK(narrow.gradients[p][i] == doctest::Approx(padded.gradients[p][i]).epsilon(1e-4).scale(0.01));
    }
  }
}

TEST_CASE("the learned positions that a narrower bucket does not reach get a gradient of zero") {
  const Networks networks(k_masked);
  const OneStep step(networks, options(1, 2, Rematerialize::none), Made(2, 2, 1));
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
  const Networks networks(test::k_token_network);
  const auto o = options(3, 4, Rematerialize::none, "1f1b");
  const auto plan = networks.plan(o);
  const auto alone = pipeline::make_plan(networks.all[0], {o, k_batch, 1, {}});
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
  const Networks networks(R"(
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
  const auto alone = pipeline::make_plan(networks.all[0], {o, k_batch, 0, {}});
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
  CHECK(run(networks, o, 6) == run(networks, options(1, 2, Rematerialize::full), 6));

  pipeline::Engine engine(*plan);
  base::Problems problems;
  const auto optimizer = train::make_optimizer(app::parse_yaml("sgd: {momentum: 0}", "optimizer"), "optimizer", problems);
  test::initialise(engine, *optimizer, 3);
  for (int step = 0; step < 4; ++step) {
    const std::vector<device::Update> rules(engine.parameter_count(), optimizer->rule(step, 0.5, true));
    Made made(step % 2, step % 2, step);
    engine.train(made.view(), rules, 0);
    Made narrow(2, 2, 50), padded(2, 0, 50);
    engine.evaluate(narrow.view());
    engine.evaluate(padded.view());
    for (size_t i = 0; i < 2 * Made::valid; ++i) CHECK(narrow.results[i] == doctest::Approx(padded.results[i]).epsilon(1e-5));
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
      Networks{by_length},
      doctest::Contains("memory: its weight is [6, 6] here and [6, 9] for the widest samples, but buckets share"),
      base::ConfigError);
}
