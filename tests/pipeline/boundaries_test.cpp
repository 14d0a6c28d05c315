// The forms of `balance`, the memory of a stage, and devices that differ.
#include "core/pipeline/boundaries.h"

#include "app/yaml_tree.h"
#include "core/base/rng.h"
#include "core/pipeline/estimate.h"
#include "core/pipeline/plan.h"
#include "core/pipeline/predict.h"
#include "core/pipeline/search.h"
#include "tests/support/small_run.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

using namespace gpipe;
using pipeline::Boundaries;

namespace {

Boundaries boundaries_of(const std::string& balance, int partitions) {
  const auto network = test::network_of(test::k_residual_network, {7, 6, 3}, 4);
  pipeline::PipelineOptions options;
  options.balance = app::parse_yaml(balance, "balance");
  options.partitions = partitions;
  return pipeline::make_plan(network, {options, 4, 0, {}})->boundaries;
}

/// Tells of a small network planned on two devices with this limit.
template <class F>
auto with_limit(const std::string& limit, F&& tell) {
  const auto network = test::network_of(test::k_residual_network, {7, 6, 3}, 4);
  pipeline::PipelineOptions options;
  options.partitions = 2;
  options.micro_batches = 2;
  options.memory_limit = app::parse_yaml(limit, "limit");
  return tell(*pipeline::make_plan(network, {options, 4, 1, {}}));
}

std::vector<int64_t> arenas(const std::string& limit) {
  return with_limit(limit, [](const pipeline::Plan& plan) {
    std::vector<int64_t> bytes;
    for (const auto& stage : plan.stages) bytes.push_back(static_cast<int64_t>(stage.memory.total()));
    return bytes;
  });
}

pipeline::MemoryVerdict verdict(const std::string& limit) { return with_limit(limit, pipeline::memory_verdict); }

}  // namespace

TEST_CASE("a balance may be auto, counts, or names to cut after") {
  CHECK(boundaries_of("auto", 2).size() == 3);
  CHECK(boundaries_of("[3, 4, 7]", 3) == Boundaries{0, 3, 7, 15});
  CHECK(boundaries_of("{cut_after: [relu_1, block]}", 3) == Boundaries{0, 3, 7, 15});
  CHECK(boundaries_of("{cut_after: [block.body.conv2d_1]}", 2) == Boundaries{0, 4, 15});
}

TEST_CASE("a balance that does not fit is refused, naming both numbers or the nearest name") {
  CHECK_THROWS_WITH_AS(boundaries_of("[3, 4]", 2), doctest::Contains("sum 7"), base::ConfigError);
  CHECK_THROWS_WITH_AS(boundaries_of("[14, 0]", 2), doctest::Contains("1"), base::ConfigError);
  CHECK_THROWS_WITH_AS(boundaries_of("[15, -1]", 2), doctest::Contains("-1"), base::ConfigError);
  CHECK_THROWS_WITH_AS(boundaries_of("auto", 15), doctest::Contains("14"), base::ConfigError);
  CHECK_THROWS_WITH_AS(boundaries_of("{cut_after: [relu_11]}", 2), doctest::Contains("relu_1"), base::ConfigError);
  CHECK_THROWS_WITH_AS(boundaries_of("{cut_after: [block, relu_1]}", 3), doctest::Contains("order"), base::ConfigError);
  CHECK_THROWS_WITH_AS(boundaries_of("{cut_after: [linear_1]}", 2), doctest::Contains("empty"), base::ConfigError);
  CHECK_THROWS_WITH_AS(boundaries_of("{cut_after: [relu_1]}", 3), doctest::Contains("partitions is 3"), base::ConfigError);
}

TEST_CASE("a plan keeps to the memory limit, or says by how much it cannot") {
  const auto free = arenas("0");
  const int64_t largest = std::max(free[0], free[1]);
  CHECK(arenas(fmt::format("{}", largest)) == free);
  CHECK(verdict("1KiB").limit == 1024);
  CHECK(verdict("1KiB").bytes >= free[0]);
  CHECK_FALSE(verdict("1KiB").fits());
  CHECK_FALSE(verdict("[1GiB, 1KiB]").fits());
  CHECK(verdict("[1GiB, 1KiB]").device == 1);
  CHECK(verdict("[1GiB, 1GiB]").fits());
  CHECK_THROWS_WITH_AS(arenas("[1GiB]"), doctest::Contains("1 entries for 2 devices"), base::ConfigError);
  CHECK_THROWS_WITH_AS(arenas("8 gigs"), doctest::Contains("GiB"), base::ConfigError);
}

TEST_CASE("a faster device gets more of the network") {
  const auto share = [](const std::string& speeds) {
    const auto network = test::network_of(test::k_residual_network, {7, 6, 3}, 4);
    pipeline::PipelineOptions options;
    options.partitions = 2;
    options.speeds = app::parse_yaml(speeds, "speeds");
    return pipeline::make_plan(network, {options, 4, 0, {}})->boundaries[1];
  };
  CHECK(share("[4, 1]") > share("[1, 4]"));
  CHECK(share("[2, 2]") == share(""));
  CHECK_THROWS_WITH_AS(share("[1, 0]"), doctest::Contains("out of range"), base::ConfigError);
  CHECK_THROWS_WITH_AS(share("[1, 2, 3]"), doctest::Contains("3 entries for 2 devices"), base::ConfigError);
  CHECK_THROWS_WITH_AS(share("fast"), doctest::Contains("a list"), base::ConfigError);
}

TEST_CASE("costs that the configuration gives override those that are estimated") {
  const auto cut = [](const std::string& costs) {
    const auto c = app::parse_yaml(costs, "costs");
    const auto cost = [&](size_t i) { return c.is_list() ? "\n  cost: " + c.items()[i].text() : std::string(); };
    const auto network =
        test::network_of("- conv2d: {out_channels: 8, kernel_size: 3}" + cost(0) + "\n- repeat: {times: 2, body: [relu, tanh]}" +
                             cost(1) + "\n- flatten:" + cost(2) + "\n- linear: {out_features: 4}" + cost(3),
                         {7, 6, 3}, 4);
    pipeline::PipelineOptions options;
    options.partitions = 2;
    return pipeline::make_plan(network, {options, 4, 0, {}})->boundaries[1];
  };
  CHECK(cut("[10, 1, 1, 1]") == 1);
  CHECK(cut("[1, 1, 1, 10]") == 6);
  CHECK(cut("[1, 100, 1, 1]") == 3);  // shared out over the four nodes of the repeat
}

TEST_CASE("estimates are finite, and given costs keep their sums") {
  const auto network = test::network_of(test::k_residual_network, {7, 6, 3}, 4);
  const auto profile = pipeline::estimated_profile(network, {}, 4);
  REQUIRE(profile.size() == network.nodes.size());
  for (const auto& node : profile) {
    CHECK(node.forward > 0);
    CHECK(std::isfinite(node.total(pipeline::Rematerialize::full)));
    CHECK(node.total(pipeline::Rematerialize::full) > node.total(pipeline::Rematerialize::none));
  }
  // Twice the memory speed and twice the operations a second: half the time.
  const auto faster = pipeline::estimated_profile(network, {4e11, 4e11, 2e10}, 4);
  CHECK(faster[0].forward == doctest::Approx(profile[0].forward / 2));
  const auto given = test::network_of(
      "- sequential: [relu, {conv2d: {out_channels: 8, kernel_size: 3}}, flatten]\n  cost: 6\n"
      "- linear: {out_features: 4}\n  cost: 2",
      {7, 6, 3}, 4);
  const auto costs = pipeline::partition_costs(given, pipeline::estimated_profile(given, {}, 4), pipeline::Rematerialize::full);
  CHECK(costs[0] + costs[1] + costs[2] == doctest::Approx(6));
  CHECK(costs[3] == doctest::Approx(2));
  CHECK(costs[4] == 0);  // the loss
}

namespace {

/// Nodes cost nothing in a direction in which they do nothing, as it is in a measured profile.
void only_what_runs(const graph::Network& network, std::vector<pipeline::NodeProfile>& costs) {
  pipeline::PipelineOptions options;
  options.rematerialize = pipeline::Rematerialize::none;
  const auto plan = pipeline::make_plan(network, {options, 8, 1, costs});
  std::vector<pipeline::NodeProfile> run(costs.size());
  const pipeline::TaskProgram& tasks = plan->stages[0].program.whole;
  for (const auto& instruction : tasks.forward)
    run[static_cast<size_t>(instruction.node)].forward = costs[static_cast<size_t>(instruction.node)].forward;
  for (const auto& instruction : tasks.backward) {
    const auto node = static_cast<size_t>(instruction.node);
    if (instruction.kind == pipeline::Instruction::Kind::backward_input) run[node].backward_input = costs[node].backward_input;
    if (instruction.kind == pipeline::Instruction::Kind::backward_weight) run[node].backward_weight = costs[node].backward_weight;
  }
  costs = run;
}

/// The slowest stage of a plan as it is predicted.
double slowest(const pipeline::Plan& plan) {
  const auto prediction = pipeline::predict(plan);
  double most = 0;
  for (size_t stage = 0; stage < plan.stages.size(); ++stage)
    most = std::max(most, prediction.stage_seconds(static_cast<int>(stage), plan));
  return most;
}

/// Of all cuts into three stages that fit, the slowest stage of the best.
double least_slowest(const graph::Network& network, pipeline::PipelineOptions options,
                     const std::vector<pipeline::NodeProfile>& costs) {
  double least = std::numeric_limits<double>::infinity();
  const int nodes = network.loss_node();
  for (int first = 1; first < nodes - 1; ++first)
    for (int second = first + 1; second < nodes; ++second) {
      options.balance = app::parse_yaml(fmt::format("[{}, {}, {}]", first, second - first, nodes - second), "balance");
      const auto plan = pipeline::make_plan(network, {options, 8, 1, costs});
      if (pipeline::memory_verdict(*plan).fits()) least = std::min(least, slowest(*plan));
    }
  return least;
}

}  // namespace

TEST_CASE("the cut that balance: auto makes has the fastest slowest stage of all cuts, recompute as it really is included") {
  const auto network = test::network_of(test::k_residual_network, {7, 6, 3}, 4);
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const base::Philox random(seed, base::Purpose::test);
    std::vector<pipeline::NodeProfile> costs(network.nodes.size());
    for (size_t i = 0; i < costs.size(); ++i)
      costs[i] = {1.0 + random.below(3 * i, 9), 1.0 + random.below(3 * i + 1, 9), 1.0 * random.below(3 * i + 2, 9)};
    only_what_runs(network, costs);
    for (const auto policy : {pipeline::Rematerialize::full, pipeline::Rematerialize::none}) {
      CAPTURE(seed);
      CAPTURE(name_of(policy));
      pipeline::PipelineOptions options;
      options.partitions = 3;
      options.micro_batches = 2;
      options.rematerialize = policy;
      const auto plan = pipeline::make_plan(network, {options, 8, 1, costs});
      CHECK(slowest(*plan) == doctest::Approx(least_slowest(network, options, costs)));
      // A limit that this cut breaks; here all cuts are few enough to look at each.
      const int64_t tight = pipeline::memory_verdict(*plan).bytes - 1;
      options.memory_limit = base::Tree::scalar(std::to_string(tight));
      const double best = least_slowest(network, options, costs);
      if (!std::isfinite(best)) continue;
      const auto limited = pipeline::make_plan(network, {options, 8, 1, costs});
      CHECK(pipeline::memory_verdict(*limited).fits());
      CHECK(slowest(*limited) == doctest::Approx(best));
    }
  }
}
