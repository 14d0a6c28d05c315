// Partitions against brute force, and the forms of `balance`.
#include "core/pipeline/partition.h"

#include "app/yaml_tree.h"
#include "core/base/rng.h"
#include "tests/support/small_run.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>

using namespace gpipe;
using pipeline::Boundaries;

namespace {

struct Best {
  double bottleneck = std::numeric_limits<double>::infinity();
  double squares = std::numeric_limits<double>::infinity();
};

double sum(const std::vector<double>& costs, int begin, int end) {
  double total = 0;
  for (int i = begin; i < end; ++i) total += costs[static_cast<size_t>(i)];
  return total;
}

/// All ways to cut, one stage after the other.
void search(const std::vector<double>& costs, int begin, int stages, double bottleneck, double squares, Best& best) {
  const int n = static_cast<int>(costs.size());
  if (stages == 1) {
    const double last = sum(costs, begin, n);
    const Best here{std::max(bottleneck, last), squares + last * last};
    if (here.bottleneck < best.bottleneck || (here.bottleneck == best.bottleneck && here.squares < best.squares)) best = here;
    return;
  }
  for (int end = begin + 1; end <= n - stages + 1; ++end) {
    const double cost = sum(costs, begin, end);
    search(costs, end, stages - 1, std::max(bottleneck, cost), squares + cost * cost, best);
  }
}

Boundaries boundaries_of(const std::string& balance, int partitions) {
  const auto network = test::network_of(test::k_residual_network, {7, 6, 3}, 4);
  base::Problems problems;
  std::vector<double> costs;
  for (const auto& cost : pipeline::estimated_costs(network)) costs.push_back(cost.forward + cost.backward());
  auto boundaries = pipeline::make_boundaries(network, partitions, app::parse_yaml(balance, "balance"), costs, problems);
  problems.throw_if_any();
  return boundaries;
}

}  // namespace

TEST_CASE("the dearest stage is as cheap as brute force can make it, and ties go to the least sum of squares") {
  for (uint64_t seed = 0; seed < 150; ++seed) {
    const base::Philox random(seed, base::Purpose::test);
    std::vector<double> costs(2 + random.below(0, 9));
    for (size_t i = 0; i < costs.size(); ++i) costs[i] = random.below(10 + i, 12);  // whole numbers: sums are exact
    const int stages = 1 + static_cast<int>(random.below(1, static_cast<uint32_t>(costs.size())));
    CAPTURE(seed);
    const Boundaries boundaries = pipeline::split_by_cost(costs, stages);
    REQUIRE(boundaries.size() == static_cast<size_t>(stages) + 1);
    CHECK(boundaries.front() == 0);
    CHECK(boundaries.back() == static_cast<int>(costs.size()));
    Best found{0, 0};
    for (int k = 0; k < stages; ++k) {
      const int begin = boundaries[static_cast<size_t>(k)];
      const int end = boundaries[static_cast<size_t>(k) + 1];
      CHECK(begin < end);
      found.bottleneck = std::max(found.bottleneck, sum(costs, begin, end));
      found.squares += sum(costs, begin, end) * sum(costs, begin, end);
    }
    Best best;
    search(costs, 0, stages, 0, 0, best);
    CHECK(found.bottleneck == best.bottleneck);
    CHECK(found.squares == best.squares);
  }
}

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
