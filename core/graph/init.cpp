#include "core/graph/init.h"

#include "core/base/rng.h"

#define XXH_INLINE_ALL
#include <algorithm>
#include <cmath>
#include <numeric>
#include <xxhash.h>

namespace gpipe::graph {
namespace {

using base::Philox;
using base::Purpose;

void fill_uniform(const Philox& philox, const Init& init, std::span<float> values) {
  for (size_t begin = 0; begin < values.size(); begin += 4) {
    const auto words = philox.block(begin / 4);
    for (size_t j = 0; j < std::min<size_t>(4, values.size() - begin); ++j)
      values[begin + j] = static_cast<float>(init.value + init.magnitude * (2.0 * Philox::to_unit(words[j]) - 1.0));
  }
}

void fill_normal(const Philox& philox, const Init& init, std::span<float> values) {
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(init.value + init.magnitude * philox.normal(i));
}

// Try number k of an element is drawn from stream k; between two deviations one in twenty-two needs a second.
double truncated_normal(uint64_t seed, uint64_t name, uint64_t element, const Init& init) {
  for (uint64_t k = 0;; ++k)
    if (const double z = Philox(seed, Purpose::initialise, name, k).normal(element); z >= init.low && z <= init.high) return z;
}

// A matrix [rows, columns] as PyTorch's initialisations see a parameter: the first axis, and all others.
struct Matrix {
  size_t rows, columns;
};
Matrix matrix_of(const ParameterSpec& parameter, const std::string& full_name) {
  if (parameter.shape.rank() < 2)
    throw base::ConfigError("{}: a parameter of shape {} cannot start as a matrix", full_name, parameter.shape);
  const size_t rows = static_cast<size_t>(parameter.shape[0]);
  return {rows, static_cast<size_t>(parameter.shape.elements()) / rows};
}

// Ones in the middle of the filters whose input channel is the output channel within its group (torch.nn.init.dirac_).
void fill_dirac(const ParameterSpec& parameter, const std::string& full_name, std::span<float> values) {
  const Shape& shape = parameter.shape;  // [out, in / groups, kH, kW]
  if (shape.rank() != 4 || shape[0] % parameter.init.groups != 0)
    throw base::ConfigError("{}: dirac needs filters [out, in, height, width] whose first extent {} groups divide, found {}",
                            full_name, parameter.init.groups, shape);
  std::fill(values.begin(), values.end(), 0.0F);
  const int64_t out = shape[0] / parameter.init.groups, area = shape[2] * shape[3];
  const int64_t middle = shape[2] / 2 * shape[3] + shape[3] / 2;
  for (int64_t o = 0; o < shape[0]; ++o)
    if (const int64_t i = o % out; i < shape[1])
      values[static_cast<size_t>((o * shape[1] + i) * area + middle)] = static_cast<float>(parameter.init.magnitude);
}

// Normal, but for ceil(sparsity * rows) elements of each column: the first of a shuffled order of its own.
void fill_sparse(uint64_t seed, uint64_t name, const Init& init, Matrix m, std::span<float> values) {
  fill_normal(Philox(seed, Purpose::initialise, name), {.magnitude = init.magnitude}, values);
  const size_t zeros = static_cast<size_t>(std::ceil(init.sparsity * static_cast<double>(m.rows)));
  std::vector<size_t> order(m.rows);
  for (size_t c = 0; c < m.columns; ++c) {
    const Philox draw(seed, Purpose::initialise, name, c + 1);
    std::iota(order.begin(), order.end(), size_t{0});
    for (size_t i = 0; i < std::min(zeros, m.rows); ++i) {
      std::swap(order[i], order[i + draw.below(i, static_cast<uint32_t>(m.rows - i))]);
      values[order[i] * m.columns + c] = 0.0F;
    }
  }
}

double dot(const double* a, const double* b, size_t count) {
  constexpr size_t width = 8;
  std::array<double, width> lane{};
  size_t i = 0;
  for (; i + width <= count; i += width)
    for (size_t j = 0; j < width; ++j) lane[j] += a[i + j] * b[i + j];
  for (size_t j = 0; i < count; ++i, ++j) lane[j] += a[i] * b[i];
  return std::accumulate(lane.begin(), lane.end(), 0.0);
}

// The Q of a QR decomposition, R's diagonal positive, of a normal matrix or, if it is wide, of its transpose
// (torch.nn.init.orthogonal_; Saxe et al. 2013, arXiv 1312.6120). Gram-Schmidt, each vector freed of the earlier ones twice.
void fill_orthogonal(const Philox& philox, const Init& init, Matrix m, std::span<float> values) {
  const bool wide = m.rows < m.columns;
  const size_t count = std::min(m.rows, m.columns), length = std::max(m.rows, m.columns);
  const auto index = [&](size_t vector, size_t i) { return wide ? vector * m.columns + i : i * m.columns + vector; };
  std::vector<double> basis(count * length);
  for (size_t v = 0; v < count; ++v) {
    double* own = basis.data() + v * length;
    for (size_t i = 0; i < length; ++i) own[i] = philox.normal(index(v, i));
    for (int pass = 0; pass < 2; ++pass)
      for (size_t u = 0; u < v; ++u) {
        const double* other = basis.data() + u * length;
        const double share = dot(other, own, length);
        for (size_t i = 0; i < length; ++i) own[i] -= share * other[i];
      }
    const double norm = std::sqrt(dot(own, own, length));
    for (size_t i = 0; i < length; ++i) {
      own[i] /= norm;
      values[index(v, i)] = static_cast<float>(init.magnitude * own[i]);
    }
  }
}

void fill(const ParameterSpec& parameter, const std::string& full_name, uint64_t seed, std::span<float> values) {
  const Init& init = parameter.init;
  const uint64_t name = XXH64(full_name.data(), full_name.size(), 0);
  const Philox philox(seed, Purpose::initialise, name);
  switch (init.kind) {
    case Init::Kind::constant: std::fill(values.begin(), values.end(), static_cast<float>(init.value)); return;
    case Init::Kind::uniform: fill_uniform(philox, init, values); return;
    case Init::Kind::normal: fill_normal(philox, init, values); return;
    case Init::Kind::truncated_normal:
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>(init.value + init.magnitude * truncated_normal(seed, name, i, init));
      return;
    case Init::Kind::eye: {
      const Matrix m = matrix_of(parameter, full_name);
      std::fill(values.begin(), values.end(), 0.0F);
      for (size_t i = 0; i < std::min(m.rows, m.columns); ++i) values[i * m.columns + i] = static_cast<float>(init.magnitude);
      return;
    }
    case Init::Kind::dirac: fill_dirac(parameter, full_name, values); return;
    case Init::Kind::orthogonal: fill_orthogonal(philox, init, matrix_of(parameter, full_name), values); return;
    case Init::Kind::sparse: fill_sparse(seed, name, init, matrix_of(parameter, full_name), values); return;
  }
}

}  // namespace

void initialise(const ParameterSpec& parameter, const std::string& full_name, uint64_t seed, std::span<float> values) {
  GP_CHECK_EQ(values.size(), static_cast<size_t>(parameter.shape.elements()));
  fill(parameter, full_name, seed, values);
  if (parameter.init.zero_row < 0) return;
  const size_t row = values.size() / static_cast<size_t>(parameter.shape[0]);
  std::fill_n(values.begin() + static_cast<std::ptrdiff_t>(row * static_cast<size_t>(parameter.init.zero_row)), row, 0.0F);
}

}  // namespace gpipe::graph
