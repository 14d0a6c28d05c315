// The first values of parameters.
#include "core/graph/init.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>

using namespace gpipe;
using Kind = graph::Init::Kind;

namespace {

std::vector<float> values_of(graph::Init init, const std::string& name, uint64_t seed, int64_t count = 20000) {
  std::vector<float> values(static_cast<size_t>(count));
  graph::initialise({"weight", {count}, init, true}, name, seed, values);
  return values;
}

std::vector<float> matrix_of(const graph::Init& init, const tensor::Shape& shape, uint64_t seed = 1) {
  std::vector<float> values(static_cast<size_t>(shape.elements()));
  graph::initialise({"weight", shape, init, true}, "m", seed, values);
  return values;
}

/// The largest difference between a a^T of the rows (or a^T a) and square times the identity.
double off_orthogonal(const std::vector<float>& a, size_t rows, size_t columns, double square) {
  const bool wide = rows < columns;
  const size_t count = wide ? rows : columns, length = wide ? columns : rows;
  const auto at = [&](size_t vector, size_t i) {
    return static_cast<double>(wide ? a[vector * columns + i] : a[i * columns + vector]);
  };
  double largest = 0;
  for (size_t u = 0; u < count; ++u)
    for (size_t v = 0; v <= u; ++v) {
      double sum = 0;
      for (size_t i = 0; i < length; ++i) sum += at(u, i) * at(v, i);
      largest = std::max(largest, std::abs(sum - (u == v ? square : 0)));
    }
  return largest;
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

TEST_CASE("a truncated normal keeps any two ends, and a uniform any middle") {
  const std::vector<float> upper =
      values_of({.kind = Kind::truncated_normal, .value = 1, .magnitude = 2, .low = 0.5, .high = 1.5}, "t", 1);
  CHECK(*std::min_element(upper.begin(), upper.end()) >= 2);
  CHECK(*std::max_element(upper.begin(), upper.end()) <= 4);
  CHECK(moments_of(upper).mean == doctest::Approx(1 + 2 * 0.92).epsilon(0.01));  // (phi(0.5) - phi(1.5)) / (Phi(1.5) - Phi(0.5))
  const std::vector<float> uniform = values_of({Kind::uniform, 2.5, 1.5}, "u", 1);
  CHECK(*std::min_element(uniform.begin(), uniform.end()) >= 1);
  CHECK(*std::max_element(uniform.begin(), uniform.end()) <= 4);
  CHECK(moments_of(uniform).mean == doctest::Approx(2.5).epsilon(0.01));
}

TEST_CASE("orthogonal matrices have orthogonal rows or columns, positive like a Q, and no favourite direction") {
  for (const tensor::Shape& shape : {tensor::Shape{1, 1}, tensor::Shape{7, 7}, tensor::Shape{5, 33}, tensor::Shape{64, 17},
                                     tensor::Shape{6, 4, 3, 3}, tensor::Shape{200, 130}}) {
    CAPTURE(shape.text());
    const size_t rows = static_cast<size_t>(shape[0]), columns = static_cast<size_t>(shape.elements()) / rows;
    const std::vector<float> values = matrix_of({Kind::orthogonal, 0, 1.5}, shape);
    CHECK(off_orthogonal(values, rows, columns, 2.25) < 1e-5);
    CHECK(values == matrix_of({Kind::orthogonal, 0, 1.5}, shape));
    if (values.size() > 1) CHECK(values != matrix_of({Kind::orthogonal, 0, 1.5}, shape, 2));
  }
  const Moments moments = moments_of(matrix_of({Kind::orthogonal, 0, 1}, {128, 128}));
  CHECK(std::abs(moments.mean) < 0.005);
  CHECK(moments.deviation == doctest::Approx(1 / std::sqrt(128.0)).epsilon(1e-4));
}

TEST_CASE("sparse matrices have their zeros in every column, in other places for each") {
  const std::vector<float> values = matrix_of({.kind = Kind::sparse, .magnitude = 0.5, .sparsity = 0.31}, {50, 40});
  std::vector<float> others;
  std::set<std::vector<size_t>> patterns;
  for (size_t c = 0; c < 40; ++c) {
    std::vector<size_t> zeros;
    for (size_t r = 0; r < 50; ++r)
      if (values[r * 40 + c] == 0)
        zeros.push_back(r);
      else
        others.push_back(values[r * 40 + c]);
    CHECK(zeros.size() == 16);  // ceil(0.31 * 50)
    patterns.insert(zeros);
  }
  CHECK(patterns.size() == 40);
  CHECK(moments_of(others).deviation == doctest::Approx(0.5).epsilon(0.05));
  const std::vector<float> none = matrix_of({.kind = Kind::sparse, .magnitude = 1, .sparsity = 1}, {5, 3});
  CHECK(none == std::vector<float>(15, 0.0F));
}

TEST_CASE("patterns refuse parameters of another rank") {
  CHECK_THROWS_AS(matrix_of({Kind::orthogonal, 0, 1}, {5}), base::ConfigError);
  CHECK_THROWS_AS(matrix_of({.kind = Kind::dirac, .magnitude = 1}, {5, 5}), base::ConfigError);
  CHECK_THROWS_AS(matrix_of({.kind = Kind::dirac, .magnitude = 1, .groups = 2}, {5, 5, 3, 3}), base::ConfigError);
}
