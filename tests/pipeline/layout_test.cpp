// Memory: lifetimes that overlap never share bytes, and the plan is what the run uses.
#include "core/base/rng.h"
#include "tests/support/small_run.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

using namespace gpipe;

TEST_CASE("pieces in use at the same time get disjoint places") {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const base::Philox random(seed, base::Purpose::test);
    std::vector<pipeline::Lifetime> pieces(1 + random.below(0, 60));
    for (size_t i = 0; i < pieces.size(); ++i) {
      pieces[i].bytes = 64 * (1 + random.below(100 + 3 * i, 30));
      pieces[i].first = static_cast<int>(random.below(101 + 3 * i, 40));
      pieces[i].last = pieces[i].first + static_cast<int>(random.below(102 + 3 * i, 8));
    }
    std::vector<pipeline::Lifetime*> pointers;
    for (auto& piece : pieces) pointers.push_back(&piece);
    const size_t total = pipeline::lay_out(pointers);
    size_t most_at_once = 0;
    for (int time = 0; time < 50; ++time) {
      size_t in_use = 0;
      for (const auto& piece : pieces)
        if (piece.first <= time && time <= piece.last) in_use += piece.bytes;
      most_at_once = std::max(most_at_once, in_use);
    }
    CAPTURE(seed);
    CHECK(total >= most_at_once);
    for (const auto& a : pieces) {
      CHECK(a.offset + a.bytes <= total);
      for (const auto& b : pieces) {
        if (&a == &b || a.last < b.first || b.last < a.first) continue;
        CHECK((a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset));
      }
    }
  }
}

TEST_CASE("the arena that a run allocates is what the plan says, to the byte") {
  const auto network = test::network_of(test::k_residual_network, {7, 6, 3}, 4);
  for (const int64_t partitions : {1, 2, 5}) {
    pipeline::PipelineOptions options;
    options.partitions = partitions;
    options.micro_batches = 3;
    const auto plan = pipeline::make_plan(network, {options, 8, 1, {}});
    const pipeline::Engine engine(*plan);
    size_t sum = 0;
    for (size_t stage = 0; stage < plan->stages.size(); ++stage) {
      CHECK(engine.arena_bytes(static_cast<int>(stage)) == plan->stages[stage].memory.total());
      sum += engine.arena_bytes(static_cast<int>(stage));
    }
    CHECK(sum == plan->arena_bytes());
  }
}

TEST_CASE("recompute at K=1, M=8 takes less than a third of the arena of a 20-layer network") {
  std::string layers;
  for (int i = 0; i < 20; ++i) layers += "- conv2d: {out_channels: 8, kernel_size: 3, padding: same}\n";
  const auto network = test::network_of(layers + "- global_avg_pool\n- linear: {out_features: 4}\n", {16, 16, 8}, 4);
  pipeline::PipelineOptions options;
  options.micro_batches = 8;
  options.rematerialize = pipeline::Rematerialize::full;
  const auto full = pipeline::make_plan(network, {options, 64, 1, {}});
  options.rematerialize = pipeline::Rematerialize::none;
  const auto none = pipeline::make_plan(network, {options, 64, 1, {}});
  CHECK(3 * full->arena_bytes() < none->arena_bytes());
}

TEST_CASE("arenas that fit the machine one by one but not together are refused before anything is allocated") {
  std::string layers;
  for (int i = 0; i < 8; ++i) layers += "- conv2d: {out_channels: 256, kernel_size: 1}\n";
  const auto network = test::network_of(layers + "- global_avg_pool\n- linear: {out_features: 4}\n", {64, 64, 3}, 4);
  pipeline::PipelineOptions options;
  options.partitions = 8;
  options.micro_batches = 1;
  const int64_t machine = device::open_backend("cpu", {})->info().memory_bytes;
  const int64_t sample = 64 * 64 * 256 * 4;  // bytes of one activation: each stage holds several
  const auto plan = pipeline::make_plan(network, {options, machine / sample / 4, 0, {}});
  CHECK(plan->arena_bytes() > static_cast<size_t>(machine));
  CHECK_THROWS_WITH_AS(pipeline::Engine{*plan}, doctest::Contains("micro_batches"), base::MemoryError);
}

TEST_CASE("the stages of a device take turns with one working memory, as large as the largest of them needs") {
  const auto network = test::network_of(test::k_residual_network, {7, 6, 3}, 4);
  pipeline::PipelineOptions options;
  options.partitions = 2;
  options.micro_batches = 4;
  options.schedule = "interleaved";
  const auto plan = pipeline::make_plan(network, {options, 8, 1, {}});
  REQUIRE(plan->stages.size() == 4);
  for (const size_t device : {0U, 1U}) {
    const auto& first = plan->stages[device];
    const auto& second = plan->stages[device + 2];
    CHECK(second.device == static_cast<int>(device));
    CHECK(first.memory.working == std::max(first.program.working_bytes, second.program.working_bytes));
    CHECK(second.memory.working == 0);
    CHECK(second.program.working_bytes > 0);
  }
}
