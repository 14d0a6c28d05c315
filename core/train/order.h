// Which sample comes when: pure functions of (seed, epoch), so that a resumed run sees the order it would have seen.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gpipe::train {

/// Fills `order` with 0..n-1 shuffled (Fisher-Yates on Philox words). n < 2^32. Allocates nothing.
void shuffled_order(uint64_t seed, int64_t epoch, std::span<int64_t> order);

/// Which samples make which mini-batch of an epoch: consecutive ones of the epoch's order, or of those in one bucket. With more
/// than one bucket the mini-batches are shuffled as well; unshuffled, they follow by their first samples.
class EpochOrder {
 public:
  /// `bucket_of`: of each sample, or empty for one bucket. With drop_last no mini-batch is smaller than batch_size.
  EpochOrder(int64_t samples, std::vector<int> bucket_of, int64_t batch_size, bool drop_last);

  int64_t batches() const { return static_cast<int64_t>(batches_.size()); }
  int64_t samples() const;  // in all mini-batches
  std::vector<int64_t> batches_by_bucket() const;

  /// A pure function of the arguments; allocates nothing.
  void begin(uint64_t seed, int64_t epoch, bool shuffle);

  struct Batch {
    int bucket;
    std::span<const int64_t> samples;
  };
  Batch batch(int64_t index) const;

 private:
  struct Range {
    int bucket;
    int64_t first, last;  // in order_
  };

  std::vector<int> bucket_of_;
  std::vector<int64_t> order_, shuffled_;
  std::vector<int64_t> starts_, next_;  // in order_, by bucket
  std::vector<Range> ranges_;           // by bucket
  std::vector<int64_t> batches_;        // indices of ranges_ in the order of the epoch
};

struct SplitIndices {
  std::vector<int64_t> kept;      // ascending
  std::vector<int64_t> held_out;  // ascending
};

/// Draws round(share * n) of n samples, by seed.
SplitIndices split_indices(int64_t n, double share, uint64_t seed);

}  // namespace gpipe::train
