// Mini-batches of one bucket each: which samples, in which order, as a function of (seed, epoch, index) and of nothing else.
#include "core/base/error.h"
#include "core/device/ops.h"
#include "core/train/data.h"
#include "core/train/loader.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <set>

using namespace gpipe;
using train::Batch;
using train::EpochOrder;
using train::Loader;
using train::LoaderOptions;

namespace {

/// Sample i is 1 + i % 5 tokens of id i, and a target for each; the buckets are [5], [3] and [2].
class Lengths final : public train::Dataset {
 public:
  explicit Lengths(int64_t size) : size_(size) {
    spec_.input = {5};
    spec_.target = {5};
    spec_.input_type = tensor::DType::i32;
    spec_.classes = 1000;
    spec_.narrower = {{{3}, {3}}, {{2}, {2}}};
  }
  const train::SampleSpec& spec() const override { return spec_; }
  int64_t size() const override { return size_; }
  int bucket_of(int64_t index) const override { return index % 5 < 2 ? 2 : index % 5 < 3 ? 1 : 0; }
  void read(int64_t index, std::span<std::byte> input, std::span<std::byte> target) const override {
    const auto ids = train::as_ints(input), next = train::as_ints(target);
    for (int64_t t = 0; t < static_cast<int64_t>(ids.size()); ++t) {
      ids[static_cast<size_t>(t)] = t <= index % 5 ? static_cast<int32_t>(index) : -1;
      next[static_cast<size_t>(t)] = t <= index % 5 ? 7 : device::k_ignored_target;
    }
  }
  std::string describe() const override { return "lengths"; }

 private:
  int64_t size_;
  train::SampleSpec spec_;
};

struct Copy {
  std::vector<int32_t> input, target;
  int bucket;
  int64_t samples, targets, epoch, index;
  bool last;
  bool operator==(const Copy&) const = default;
};

Copy copy_of(const Batch& batch) {
  const int32_t *ids = batch.input.i32(), *targets = batch.target.i32();
  return {{ids, ids + batch.input.elements()},
          {targets, targets + batch.target.elements()},
          batch.bucket,
          batch.samples,
          batch.targets,
          batch.epoch,
          batch.index,
          batch.last_of_epoch};
}

std::vector<Copy> take(Loader& loader, int64_t count) {
  std::vector<Copy> all;
  for (int64_t i = 0; i < count; ++i) all.push_back(copy_of(loader.next()));
  return all;
}

/// The samples that a batch holds, by the ids that they are made of.
std::vector<int32_t> samples_of(const Copy& batch) {
  const size_t width = batch.input.size() / 4;
  std::vector<int32_t> all;
  for (size_t row = 0; row < static_cast<size_t>(batch.samples); ++row) all.push_back(batch.input[row * width]);
  return all;
}

LoaderOptions shuffled() {
  LoaderOptions options;
  options.batch_size = 4;
  options.shuffle = true;
  options.seed = 5;
  return options;
}

}  // namespace

TEST_CASE("every batch is of one bucket, as wide as it, and an epoch holds every sample once") {
  const Lengths data(53);
  Loader loader(std::make_shared<Lengths>(53), shuffled());
  // Of 53 samples 22 are in bucket 2, 11 in bucket 1, 20 in bucket 0.
  CHECK(loader.batches_per_epoch() == 6 + 3 + 5);
  CHECK(loader.samples_per_epoch() == 53);
  loader.start(0, 0);
  std::set<std::vector<int>> orders;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<int32_t> seen;
    std::vector<int> buckets;
    for (const Copy& batch : take(loader, 14)) {
      CHECK(batch.epoch == epoch);
      const std::vector<size_t> widths{5, 3, 2};
      const size_t width = widths[static_cast<size_t>(batch.bucket)];
      CHECK(batch.input.size() == 4 * width);
      CHECK(batch.target.size() == 4 * width);
      int64_t targets = 0;
      for (const int32_t sample : samples_of(batch)) {
        CHECK(data.bucket_of(sample) == batch.bucket);
        targets += 1 + sample % 5;
        seen.push_back(sample);
      }
      CHECK(batch.targets == targets);
      for (size_t i = static_cast<size_t>(batch.samples) * width; i < batch.input.size(); ++i)  // the last sample again
        CHECK(batch.input[i] == batch.input[i - width]);
      buckets.push_back(batch.bucket);
    }
    std::sort(seen.begin(), seen.end());
    std::vector<int32_t> all(53);
    std::iota(all.begin(), all.end(), 0);
    CHECK(seen == all);
    CHECK(!std::is_sorted(buckets.begin(), buckets.end()));
    orders.insert(buckets);
  }
  CHECK(orders.size() == 3);  // another order of buckets in each epoch
}

TEST_CASE("a start at any batch goes on as if the loader had run there, whatever the prefetch depth") {
  const auto data = std::make_shared<Lengths>(53);
  LoaderOptions options = shuffled();
  Loader whole(data, options);
  whole.start(0, 0);
  const auto reference = take(whole, 30);
  for (const int64_t prefetch : {0, 3}) {
    options.prefetch = prefetch;
    Loader loader(data, options);
    for (int64_t at = 0; at < 28; ++at) {
      loader.start(at / 14, at % 14);
      const auto next = take(loader, 2);
      CHECK(next[0] == reference[static_cast<size_t>(at)]);
      CHECK(next[1] == reference[static_cast<size_t>(at) + 1]);
    }
  }
  options.seed = 6;
  Loader other(data, options);
  other.start(0, 0);
  CHECK(take(other, 30) != reference);
}

TEST_CASE("drop_last leaves the rest of each bucket out, and refuses what fills no bucket") {
  LoaderOptions options = shuffled();
  options.drop_last = true;
  Loader loader(std::make_shared<Lengths>(53), options);
  CHECK(loader.batches_per_epoch() == 5 + 2 + 5);
  CHECK(loader.samples_per_epoch() == 48);
  loader.start(0, 0);
  for (const Copy& batch : take(loader, 12)) CHECK(batch.samples == 4);
  CHECK_THROWS_WITH_AS(
      Loader(std::make_shared<Lengths>(6), options),
      "batch_size 4 is more than the 6 samples of lengths in any of its buckets: lower it, or set drop_last: false",
      base::ConfigError);
}

TEST_CASE("unshuffled batches follow by their first samples; without buckets all are as wide as the widest, in order") {
  LoaderOptions options;
  options.batch_size = 4;
  Loader loader(std::make_shared<Lengths>(20), options);
  loader.start(0, 0);
  std::vector<std::vector<int32_t>> found;
  for (const Copy& batch : take(loader, loader.batches_per_epoch())) found.push_back(samples_of(batch));
  CHECK(found ==
        std::vector<std::vector<int32_t>>{{0, 1, 5, 6}, {2, 7, 12, 17}, {3, 4, 8, 9}, {10, 11, 15, 16}, {13, 14, 18, 19}});
  options.buckets = false;
  Loader wide(std::make_shared<Lengths>(20), options);
  wide.start(0, 0);
  int32_t next = 0;
  for (const Copy& batch : take(wide, 5)) {
    CHECK(batch.bucket == 0);
    CHECK(batch.input.size() == 20);
    for (const int32_t sample : samples_of(batch)) CHECK(sample == next++);
  }
}

TEST_CASE("what a split leaves keeps its buckets; every place of an epoch is as likely for every batch") {
  const auto half = train::subset(std::make_shared<Lengths>(10), {1, 2, 4, 8}, "some");
  CHECK(half->spec().buckets() == 3);
  for (const auto& [index, bucket] : {std::pair{0, 2}, {1, 1}, {2, 0}, {3, 0}}) CHECK(half->bucket_of(index) == bucket);

  EpochOrder order(6, {0, 1, 0, 1, 0, 1}, 2, false);  // two batches of each, one of them half full
  CHECK(order.batches_by_bucket() == std::vector<int64_t>{2, 2});
  std::vector<int> first(2);
  for (int64_t epoch = 0; epoch < 2000; ++epoch) {
    order.begin(1, epoch, true);
    ++first[static_cast<size_t>(order.batch(0).bucket)];
  }
  CHECK(std::abs(first[0] - 1000) < 110);  // five standard deviations
}
