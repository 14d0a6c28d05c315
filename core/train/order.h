// Which sample comes when: pure functions of (seed, epoch), so that a resumed run sees the order it would have seen.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gpipe::train {

/// Fills `order` with 0..n-1 shuffled (Fisher-Yates on Philox words). n < 2^32. Allocates nothing.
void shuffled_order(uint64_t seed, int64_t epoch, std::span<int64_t> order);

struct SplitIndices {
  std::vector<int64_t> kept;      // ascending
  std::vector<int64_t> held_out;  // ascending
};

/// Draws round(share * n) of n samples, by seed.
SplitIndices split_indices(int64_t n, double share, uint64_t seed);

}  // namespace gpipe::train
