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

EpochOrder::EpochOrder(int64_t samples, std::vector<int> bucket_of, int64_t batch_size, bool drop_last)
    : bucket_of_(std::move(bucket_of)), order_(static_cast<size_t>(samples)), shuffled_(bucket_of_.size()) {
  GP_CHECK(bucket_of_.empty() || bucket_of_.size() == order_.size());
  const int buckets = bucket_of_.empty() ? 1 : 1 + *std::max_element(bucket_of_.begin(), bucket_of_.end());
  starts_.assign(static_cast<size_t>(buckets) + 1, 0);
  for (const int bucket : bucket_of_) ++starts_[static_cast<size_t>(bucket) + 1];
  if (bucket_of_.empty()) starts_[1] = samples;
  std::partial_sum(starts_.begin(), starts_.end(), starts_.begin());
  next_.resize(starts_.size());
  for (int bucket = 0; bucket < buckets; ++bucket) {
    const int64_t end = starts_[static_cast<size_t>(bucket) + 1];
    for (int64_t first = starts_[static_cast<size_t>(bucket)]; first < end; first += batch_size) {
      if (drop_last && first + batch_size > end) break;
      ranges_.push_back({bucket, first, std::min(first + batch_size, end)});
    }
  }
  batches_.resize(ranges_.size());
  std::iota(batches_.begin(), batches_.end(), int64_t{0});
}

int64_t EpochOrder::samples() const {
  int64_t sum = 0;
  for (const Range& range : ranges_) sum += range.last - range.first;
  return sum;
}

std::vector<int64_t> EpochOrder::batches_by_bucket() const {
  std::vector<int64_t> counts(starts_.size() - 1, 0);
  for (const Range& range : ranges_) ++counts[static_cast<size_t>(range.bucket)];
  return counts;
}

void EpochOrder::begin(uint64_t seed, int64_t epoch, bool shuffled) {
  std::vector<int64_t>& samples = bucket_of_.empty() ? order_ : shuffled_;
  if (shuffled)
    shuffled_order(seed, epoch, samples);
  else
    std::iota(samples.begin(), samples.end(), int64_t{0});
  if (bucket_of_.empty()) return;
  std::copy(starts_.begin(), starts_.end(), next_.begin());
  for (const int64_t sample : samples)
    order_[static_cast<size_t>(next_[static_cast<size_t>(bucket_of_[static_cast<size_t>(sample)])]++)] = sample;
  if (shuffled) {
    shuffle(base::Philox(seed, base::Purpose::shuffle, static_cast<uint64_t>(epoch), 1), batches_);
    return;
  }
  const auto first_sample = [this](int64_t batch) {
    return order_[static_cast<size_t>(ranges_[static_cast<size_t>(batch)].first)];
  };
  std::sort(batches_.begin(), batches_.end(), [&](int64_t a, int64_t b) { return first_sample(a) < first_sample(b); });
}

EpochOrder::Batch EpochOrder::batch(int64_t index) const {
  const Range& range = ranges_[static_cast<size_t>(batches_[static_cast<size_t>(index)])];
  return {range.bucket,
          std::span(order_).subspan(static_cast<size_t>(range.first), static_cast<size_t>(range.last - range.first))};
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
