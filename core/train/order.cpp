#include "core/train/order.h"

#include "core/base/error.h"
#include "core/base/rng.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace gpipe::train {

namespace {

void shuffle(const base::Philox& random, std::span<int64_t> order) {
  GP_CHECK(order.size() <= std::numeric_limits<uint32_t>::max());
  std::iota(order.begin(), order.end(), int64_t{0});
  for (size_t i = order.size(); i > 1; --i) {
    const uint32_t j = random.below(i, static_cast<uint32_t>(i));
    std::swap(order[i - 1], order[j]);
  }
}

}  // namespace

void shuffled_order(uint64_t seed, int64_t epoch, std::span<int64_t> order) {
  shuffle(base::Philox(seed, base::Purpose::shuffle, static_cast<uint64_t>(epoch)), order);
}

SplitIndices split_indices(int64_t n, double share, uint64_t seed) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  shuffle(base::Philox(seed, base::Purpose::split), order);
  const auto held = static_cast<int64_t>(std::llround(share * static_cast<double>(n)));
  SplitIndices split;
  split.held_out.assign(order.begin(), order.begin() + held);
  split.kept.assign(order.begin() + held, order.end());
  std::sort(split.held_out.begin(), split.held_out.end());
  std::sort(split.kept.begin(), split.kept.end());
  return split;
}

}  // namespace gpipe::train
