#include "tests/support/device_block.h"

#include "core/base/rng.h"

namespace gpipe::test {

std::vector<float> noise(uint64_t seed, int64_t count) {
  const base::Philox philox(seed, base::Purpose::test);
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = 2 * philox.uniform(i) - 1;
  return values;
}

}  // namespace gpipe::test
