// The first values of parameters.
#include "core/graph/init.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

using namespace gpipe;
using Kind = graph::Init::Kind;

namespace {

std::vector<float> values_of(graph::Init init, const std::string& name, uint64_t seed, int64_t count = 20000) {
  std::vector<float> values(static_cast<size_t>(count));
  graph::initialise({"weight", {count}, init, true}, name, seed, values);
  return values;
}

struct Moments {
  double mean, deviation, largest;
};
Moments moments_of(const std::vector<float>& values) {
  double sum = 0, squares = 0, largest = 0;
  for (float x : values) {
    sum += x;
    squares += static_cast<double>(x) * x;
    largest = std::max(largest, std::abs(static_cast<double>(x)));
  }
  const double n = static_cast<double>(values.size());
  return {sum / n, std::sqrt(squares / n - sum / n * sum / n), largest};
}

}  // namespace

TEST_CASE("a parameter starts as a function of seed and name alone") {
  for (Kind kind : {Kind::uniform, Kind::normal, Kind::truncated_normal}) {
    const graph::Init init{kind, 0, 0.5};
    CHECK(values_of(init, "a.weight", 1) == values_of(init, "a.weight", 1));
    CHECK(values_of(init, "a.weight", 1) != values_of(init, "a.weight", 2));
    CHECK(values_of(init, "a.weight", 1) != values_of(init, "b.weight", 1));
    std::vector<float> longer = values_of(init, "a.weight", 1, 50);
    longer.resize(7);
    CHECK(longer == values_of(init, "a.weight", 1, 7));
  }
}

TEST_CASE("distributions have their bounds, means and deviations") {
  CHECK(values_of({Kind::constant, 3, 0}, "c", 1, 5) == std::vector<float>(5, 3.0F));
  const Moments uniform = moments_of(values_of({Kind::uniform, 0, 0.2}, "u", 1));
  CHECK(std::abs(uniform.mean) < 0.003);
  CHECK(uniform.deviation == doctest::Approx(0.2 / std::sqrt(3.0)).epsilon(0.02));
  CHECK(uniform.largest <= 0.2F);
  const Moments normal = moments_of(values_of({Kind::normal, 1, 0.5}, "n", 1));
  CHECK(normal.mean == doctest::Approx(1).epsilon(0.02));
  CHECK(normal.deviation == doctest::Approx(0.5).epsilon(0.02));
  const Moments truncated = moments_of(values_of({Kind::truncated_normal, 0, 0.5}, "t", 1));
  CHECK(truncated.largest <= 1.0);
  CHECK(truncated.deviation == doctest::Approx(0.5 * 0.8796).epsilon(0.02));
}
