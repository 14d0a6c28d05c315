// Partitions against brute force over all splits, and against answers that others computed for published profiles.
#include "core/pipeline/partition.h"

#include "app/layer_costs.h"
#include "core/base/error.h"
#include "core/base/rng.h"
#include "tests/support/paths.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
#include <functional>
#include <limits>
#include <optional>
#include <tuple>

using namespace gpipe;
using pipeline::Boundaries;
using pipeline::Misfit;
using pipeline::Objective;
using pipeline::Partition;
using pipeline::PartitionProblem;

namespace {

/// What splits are compared by. All numbers of the made problems are whole, and speeds powers of two, so sums are exact.
struct Judged {
  double bottleneck = 0, spread = 0;  // spread: K x sum of squares - square of the sum = K^2 x variance
  int64_t bytes = 0;
  int64_t excess = 0;  // of the worst stage over its limit; 0 or less: fits
};

Judged judge(const PartitionProblem& p, const Boundaries& boundaries) {
  Judged out;
  out.excess = std::numeric_limits<int64_t>::min();
  double sum = 0;
  double squares = 0;
  const int n = static_cast<int>(p.costs.size());
  for (int stage = 0; stage < p.stages; ++stage) {
    const auto s = static_cast<size_t>(stage);
    const int first = boundaries[s];
    const int last = boundaries[s + 1];
    double cost = 0;
    int64_t held = 0;
    int64_t workspace = 0;
    for (auto i = static_cast<size_t>(first); i < static_cast<size_t>(last); ++i) {
      cost += p.costs[i];
      held += p.memory.fixed[i] + p.memory.live[s] * p.memory.kept[i];
      workspace = std::max(workspace, p.memory.workspace[i]);
    }
    held += workspace;
    if (!p.spared.empty())
      for (const auto& spared : p.spared[static_cast<size_t>(last) - 1])
        if (spared.node >= first) cost -= spared.cost;
    double load = cost / p.speeds[s];
    if (first > 0) load += p.cut_costs[static_cast<size_t>(first) - 1];
    if (first > 0) held += p.cut_bytes[static_cast<size_t>(first) - 1] * p.memory.slots_in[s];
    if (last < n) load += p.cut_costs[static_cast<size_t>(last) - 1];
    if (last < n) held += p.cut_bytes[static_cast<size_t>(last) - 1] * p.memory.slots_out[s];
    if (last < n) out.bytes += p.cut_bytes[static_cast<size_t>(last) - 1];
    sum += load;
    squares += load * load;
    out.bottleneck = std::max(out.bottleneck, load);
    if (p.memory_limits[s] > 0) out.excess = std::max(out.excess, held - p.memory_limits[s]);
  }
  out.spread = p.stages * squares - sum * sum;
  return out;
}

void each_split(int nodes, int stages, Boundaries& so_far, const std::function<void(const Boundaries&)>& visit) {
  if (stages == 1) {
    so_far.push_back(nodes);
    visit(so_far);
    so_far.pop_back();
    return;
  }
  for (int end = so_far.back() + 1; end <= nodes - stages + 1; ++end) {
    so_far.push_back(end);
    each_split(nodes, stages - 1, so_far, visit);
    so_far.pop_back();
  }
}

auto key_of(const Judged& judged, Objective objective) {
  return objective == Objective::bottleneck ? std::tuple(judged.bottleneck, judged.spread, judged.bytes)
                                            : std::tuple(judged.spread, 0.0, judged.bytes);
}

struct Truth {
  std::optional<Judged> best;                            // of those that fit
  int64_t excess = std::numeric_limits<int64_t>::max();  // the least of the others
};

Truth brute_force(const PartitionProblem& problem, Objective objective) {
  Truth truth;
  Boundaries start{0};
  each_split(static_cast<int>(problem.costs.size()), problem.stages, start, [&](const Boundaries& boundaries) {
    const Judged judged = judge(problem, boundaries);
    truth.excess = std::min(truth.excess, judged.excess);
    if (judged.excess <= 0 && (!truth.best || key_of(judged, objective) < key_of(*truth.best, objective))) truth.best = judged;
  });
  return truth;
}

/// A small problem, everything in it drawn by the seed; `kind` says what it has: 1 cut costs, 2 speeds, 4 limits,
/// 8 costs that stages are spared.
PartitionProblem made_problem(uint64_t seed, int kind) {
  const base::Philox random(seed, base::Purpose::test);
  uint64_t at = 0;
  const auto draw = [&](uint32_t below) { return static_cast<int64_t>(random.below(at++, below)); };
  PartitionProblem p;
  const auto nodes = static_cast<size_t>(2 + draw(8));
  p.stages = 1 + static_cast<int>(draw(static_cast<uint32_t>(nodes)));
  for (size_t i = 0; i < nodes; ++i) {
    p.costs.push_back(static_cast<double>(draw(12)));
    p.cut_costs.push_back((kind & 1) != 0 ? static_cast<double>(draw(6)) : 0);
    p.cut_bytes.push_back(draw(5));
    p.memory.fixed.push_back(draw(20));
    p.memory.kept.push_back(draw(10));
    p.memory.workspace.push_back(draw(30));
  }
  for (int stage = 0; stage < p.stages; ++stage) {
    p.speeds.push_back((kind & 2) != 0 ? static_cast<double>(int64_t{1} << draw(3)) / 2 : 1);
    p.memory.live.push_back(1 + draw(3));
    p.memory.slots_in.push_back(draw(3));
    p.memory.slots_out.push_back(draw(3));
    p.memory_limits.push_back((kind & 4) != 0 && draw(4) > 0 ? 30 + draw(120) : 0);
  }
  if ((kind & 8) != 0) p.spared.resize(nodes);
  for (size_t node = 0; node < nodes && (kind & 8) != 0; ++node) {
    const double part = std::floor(p.costs[node] / 2);
    const auto until = std::min(nodes, node + static_cast<size_t>(draw(4)));
    for (size_t end = node; end < until; ++end) p.spared[end].push_back({static_cast<int>(node), part});
  }
  return p;
}

nlohmann::json json_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

/// A profile's own answers, "K": {bottleneck_ms, variance_ms2}, to the digits that they have.
void check_answers(const nlohmann::json& profile, const std::string& name) {
  const auto layers = app::layer_costs(profile, name);
  for (const auto& [partitions, answer] : profile["answers"].items()) {
    CAPTURE(name);
    CAPTURE(partitions);
    const PartitionProblem problem = app::problem_of(layers, std::stoi(partitions));
    const auto fastest = std::get<Partition>(pipeline::partition(problem, Objective::bottleneck));
    CHECK(fastest.bottleneck == doctest::Approx(answer["bottleneck_ms"].get<double>()).epsilon(1e-9));
    const auto evenest = std::get<Partition>(pipeline::partition(problem, Objective::variance));
    CHECK(std::abs(evenest.variance - answer["variance_ms2"].get<double>()) <= 0.6e-6);  // six decimal places
    const auto example = answer["variance_example"].get<std::vector<int>>();
    Boundaries boundaries{0};
    for (const int count : example) boundaries.push_back(boundaries.back() + count);
    CHECK(evenest.variance <= pipeline::measure(problem, boundaries).variance * (1 + 1e-12));
  }
}

}  // namespace

TEST_CASE("partitions equal brute force over all splits, with cut costs, speeds, limits and spared costs in every combination") {
  int fit = 0;
  int misfits = 0;
  for (int kind = 0; kind < 16; ++kind)
    for (uint64_t seed = 0; seed < 100; ++seed)
      for (const Objective objective : {Objective::bottleneck, Objective::variance}) {
        CAPTURE(kind);
        CAPTURE(seed);
        const PartitionProblem problem = made_problem(seed * 16 + static_cast<uint64_t>(kind), kind);
        const Truth truth = brute_force(problem, objective);
        const auto found = pipeline::partition(problem, objective);
        REQUIRE(std::holds_alternative<Partition>(found) == truth.best.has_value());
        if (!truth.best) {
          const auto& misfit = std::get<Misfit>(found);
          CHECK(misfit.excess() == truth.excess);
          CHECK(misfit.bytes == pipeline::stage_bytes(problem, misfit.stage, misfit.first_node, misfit.last_node));
          ++misfits;
          continue;
        }
        const auto& split = std::get<Partition>(found);
        const Judged judged = judge(problem, split.boundaries);
        CHECK(judged.excess <= 0);
        CHECK(key_of(judged, objective) == key_of(*truth.best, objective));
        CHECK(split.bottleneck == judged.bottleneck);
        CHECK(split.bytes_cut == judged.bytes);
        CHECK(split.variance == doctest::Approx(judged.spread / (problem.stages * problem.stages)));
        ++fit;
      }
  CHECK(fit > 500);
  CHECK(misfits > 50);
}

TEST_CASE("costs with decimal places tie as they do on paper") {
  // In binary 0.1 + 0.2 is more than 0.3: a search in doubles would see a difference between these splits.
  PartitionProblem problem;
  problem.costs = {0.1, 0.2, 0.3, 0.3};
  problem.cut_bytes = {0, 0, 9, 0};
  problem.stages = 3;
  CHECK(std::get<Partition>(pipeline::partition(problem, Objective::bottleneck)).boundaries == Boundaries{0, 2, 3, 4});
  problem.costs = {0.3, 0.1, 0.2, 0.3, 0.3};
  problem.cut_bytes = {5, 0, 0, 7, 0};
  problem.stages = 2;  // 0.6 and 0.6
  CHECK(std::get<Partition>(pipeline::partition(problem, Objective::variance)).boundaries == Boundaries{0, 3, 5});
}

TEST_CASE("the cumulative rule puts a layer where the cost up to and with it ends, and refuses an empty stage") {
  const auto split = [](std::vector<double> costs, int stages) {
    PartitionProblem problem;
    problem.costs = std::move(costs);
    problem.stages = stages;
    return std::get<Partition>(pipeline::partition(problem, Objective::cumulative)).boundaries;
  };
  // Shares with the layer: 1/4, 2/4, 3/4, 4/4: the second one, at exactly half, begins stage 1.
  CHECK(split({1, 1, 1, 1}, 2) == Boundaries{0, 1, 4});
  CHECK(split({3, 3, 2, 2, 2}, 3) == Boundaries{0, 1, 2, 5});
  CHECK(split({0.1, 0.1, 0.1}, 1) == Boundaries{0, 3});
  CHECK_THROWS_WITH_AS(split({8, 1, 1}, 3), doctest::Contains("stage 0 of 3 without a layer"), base::ConfigError);
  CHECK_THROWS_WITH_AS(split({0, 0, 0}, 2), doctest::Contains("all 0"), base::ConfigError);
}

TEST_CASE("a problem that makes no sense is refused in words") {
  PartitionProblem problem;
  problem.costs = {1, 2, 3};
  const auto refused = [&](const char* words) {
    CHECK_THROWS_WITH_AS(pipeline::partition(problem, Objective::bottleneck), doctest::Contains(words), base::ConfigError);
  };
  problem.stages = 4;
  refused("4 partitions of 3 layers");
  problem.stages = 0;
  refused("use 1 to 3");
  problem.stages = 2;
  problem.costs[1] = -1;
  refused("layer 1 is -1");
  problem.costs[1] = std::numeric_limits<double>::infinity();
  refused("layer 1 is inf");
  problem.costs[1] = 2;
  problem.speeds = {1, 0};
  refused("speed of 0");
  problem.speeds = {1};
  refused("1 speeds for 2 stages");
}

TEST_CASE("costs of any size come out, the smallest and the largest") {
  for (const double unit : {1e-300, 1e-12, 1.0, 1e12, 1e300}) {
    CAPTURE(unit);
    PartitionProblem problem;
    problem.costs = {1 * unit, 2 * unit, 3 * unit};
    problem.stages = 2;
    CHECK(std::get<Partition>(pipeline::partition(problem, Objective::bottleneck)).boundaries == Boundaries{0, 2, 3});
  }
  PartitionProblem zeros;
  zeros.costs = {0, 0, 0};
  zeros.stages = 3;
  CHECK(std::get<Partition>(pipeline::partition(zeros, Objective::variance)).bottleneck == 0);
}

TEST_CASE("published profiles: the bottlenecks and variances that others computed come out") {
  const auto path = test::shared("reference/partition_profiles.json");
  if (!path) return;
  const nlohmann::json profiles = json_of(*path);
  CHECK(profiles.size() >= 4);
  for (const auto& [name, profile] : profiles.items()) check_answers(profile, name);
}
