#include "core/graph/init.h"

#include "core/base/rng.h"

#define XXH_INLINE_ALL
#include <algorithm>
#include <cmath>
#include <xxhash.h>

namespace gpipe::graph {
namespace {

using base::Philox;
using base::Purpose;

void fill_uniform(const Philox& philox, double bound, std::span<float> values) {
  for (size_t begin = 0; begin < values.size(); begin += 4) {
    const auto words = philox.block(begin / 4);
    for (size_t j = 0; j < std::min<size_t>(4, values.size() - begin); ++j)
      values[begin + j] = static_cast<float>(bound * (2.0 * Philox::to_unit(words[j]) - 1.0));
  }
}

// Try number k of an element is drawn from stream k; one in twenty-two needs a second.
double truncated_normal(uint64_t seed, uint64_t name, uint64_t element) {
  for (uint64_t k = 0;; ++k)
    if (const double z = Philox(seed, Purpose::initialise, name, k).normal(element); std::abs(z) <= 2.0) return z;
}

}  // namespace

void initialise(const ParameterSpec& parameter, const std::string& full_name, uint64_t seed, std::span<float> values) {
  GP_CHECK_EQ(values.size(), static_cast<size_t>(parameter.shape.elements()));
  const Init& init = parameter.init;
  const uint64_t name = XXH64(full_name.data(), full_name.size(), 0);
  const Philox philox(seed, Purpose::initialise, name);
  switch (init.kind) {
    case Init::Kind::constant: std::fill(values.begin(), values.end(), static_cast<float>(init.value)); return;
    case Init::Kind::uniform: fill_uniform(philox, init.magnitude, values); return;
    case Init::Kind::normal:
      for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(init.value + init.magnitude * philox.normal(i));
      return;
    case Init::Kind::truncated_normal:
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>(init.value + init.magnitude * truncated_normal(seed, name, i));
      return;
  }
}

}  // namespace gpipe::graph
