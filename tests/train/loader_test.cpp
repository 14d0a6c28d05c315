// The loader: what a batch holds depends on (seed, epoch, index) and on nothing else.
#include "core/train/loader.h"

#include "core/device/ops.h"
#include "core/train/order.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <set>

using namespace gpipe;
using train::Batch;
using train::Loader;
using train::LoaderOptions;

namespace {

/// Images [H, W, C] whose every element tells its sample and place; the label is the sample's number.
class Numbered final : public train::Dataset {
 public:
  explicit Numbered(int64_t size, tensor::Shape shape = {4, 5, 2}) : size_(size) {
    spec_.input = shape;
    spec_.classes = 1000;
  }
  const train::SampleSpec& spec() const override { return spec_; }
  int64_t size() const override { return size_; }
  void read(int64_t index, std::span<std::byte> bytes, std::span<std::byte> target) const override {
    const auto input = train::as_floats(bytes);
    if (index == bad_sample) throw base::DataError("sample {} is bad", index);
    for (size_t i = 0; i < input.size(); ++i) input[i] = static_cast<float>(1 + index * 1000 + static_cast<int64_t>(i));
    const auto label = static_cast<int32_t>(index);
    std::memcpy(target.data(), &label, sizeof label);
  }
  void recheck() const override {
    if (changed) throw base::DataError("changed");
  }
  std::string describe() const override { return "numbered"; }

  int64_t bad_sample = -1;
  bool changed = false;

 private:
  int64_t size_;
  train::SampleSpec spec_;
};

struct Copy {
  std::vector<float> input;
  std::vector<int32_t> labels;
  int64_t samples, epoch, index;
  bool last;
  bool operator==(const Copy&) const = default;
};

Copy copy_of(const Batch& batch) {
  const float* from = batch.input.f32();
  const int32_t* labels = batch.target.i32();
  return {{from, from + batch.input.elements()},
          {labels, labels + batch.target.elements()},
          batch.samples,
          batch.epoch,
          batch.index,
          batch.last_of_epoch};
}

std::vector<Copy> take(Loader& loader, int64_t count) {
  std::vector<Copy> all;
  for (int64_t i = 0; i < count; ++i) all.push_back(copy_of(loader.next()));
  return all;
}

LoaderOptions busy_options() {
  LoaderOptions options;
  options.batch_size = 4;
  options.shuffle = true;
  options.seed = 5;
  options.augmentation = {2, true, 2};
  options.normalization = {{10, 20}, {0.5F, 0.25F}};
  return options;
}

}  // namespace

TEST_CASE("an order is a permutation, another for each epoch and seed, the same each time") {
  std::set<std::vector<int64_t>> seen;
  for (const int64_t n : {1, 2, 3, 7, 100, 1797}) {
    for (int64_t epoch = 0; epoch < 4; ++epoch) {
      for (const uint64_t seed : {1, 2}) {
        std::vector<int64_t> order(static_cast<size_t>(n)), again(order), sorted;
        train::shuffled_order(seed, epoch, order);
        train::shuffled_order(seed, epoch, again);
        CHECK(order == again);
        if (n >= 100) CHECK(seen.insert(order).second);
        sorted = order;
        std::sort(sorted.begin(), sorted.end());
        for (int64_t i = 0; i < n; ++i) REQUIRE(sorted[static_cast<size_t>(i)] == i);
      }
    }
  }
}

TEST_CASE("every place of a shuffled order is as likely for every sample") {
  constexpr size_t n = 6, draws = 6000;
  std::array<std::array<int, n>, n> counts{};
  std::vector<int64_t> order(n);
  for (size_t epoch = 0; epoch < draws; ++epoch) {
    train::shuffled_order(3, static_cast<int64_t>(epoch), order);
    for (size_t place = 0; place < n; ++place) ++counts[place][static_cast<size_t>(order[place])];
  }
  for (const auto& row : counts) {
    for (const int count : row) CHECK(std::abs(count - 1000) < 150);  // five standard deviations
  }
}

TEST_CASE("a split is disjoint, complete and drawn by seed") {
  const auto split = train::split_indices(103, 0.2, 1);
  CHECK(split.held_out.size() == 21);
  CHECK(split.kept.size() == 82);
  std::set<int64_t> all(split.kept.begin(), split.kept.end());
  all.insert(split.held_out.begin(), split.held_out.end());
  CHECK(all.size() == 103);
  CHECK(train::split_indices(103, 0.2, 1).held_out == split.held_out);
  CHECK(train::split_indices(103, 0.2, 2).held_out != split.held_out);
}

TEST_CASE("an epoch holds every sample once; the last batch repeats its last sample and says how many are valid") {
  Loader loader(std::make_shared<Numbered>(10), {.batch_size = 4, .shuffle = true, .seed = 9});
  CHECK(loader.batches_per_epoch() == 3);
  CHECK(loader.samples_per_epoch() == 10);
  loader.start(0, 0);
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::multiset<int32_t> labels;
    for (int64_t index = 0; index < 3; ++index) {
      const Copy batch = copy_of(loader.next());
      CHECK(batch.epoch == epoch);
      CHECK(batch.index == index);
      CHECK(batch.last == (index == 2));
      CHECK(batch.samples == (index == 2 ? 2 : 4));
      labels.insert(batch.labels.begin(), batch.labels.begin() + batch.samples);
      for (size_t row = static_cast<size_t>(batch.samples); row < 4; ++row) CHECK(batch.labels[row] == batch.labels[row - 1]);
    }
    CHECK(labels.size() == 10);
    CHECK(std::set<int32_t>(labels.begin(), labels.end()).size() == 10);
  }
}

TEST_CASE("drop_last leaves the rest out; a batch larger than the set is refused with both numbers") {
  Loader loader(std::make_shared<Numbered>(10), {.batch_size = 4, .drop_last = true});
  CHECK(loader.batches_per_epoch() == 2);
  CHECK(loader.samples_per_epoch() == 8);
  loader.start(0, 0);
  const auto batches = take(loader, 3);
  CHECK(batches[1].last);
  CHECK(batches[2].epoch == 1);
  CHECK_THROWS_WITH_AS(Loader(std::make_shared<Numbered>(3), {.batch_size = 4, .drop_last = true}),
                       "batch_size 4 is more than the 3 samples of numbered: lower it, or set drop_last: false",
                       base::ConfigError);
}

TEST_CASE("batches do not depend on the prefetch depth, and a start anywhere goes on as if it had run there") {
  const auto data = std::make_shared<Numbered>(18);
  std::vector<Copy> reference;
  for (const int64_t prefetch : {0, 1, 2, 7}) {
    LoaderOptions options = busy_options();
    options.prefetch = prefetch;
    Loader loader(data, options);
    loader.start(0, 0);
    const auto batches = take(loader, 15);
    if (reference.empty()) reference = batches;
    CHECK(batches == reference);
  }
  Loader loader(data, busy_options());
  for (int64_t at = 0; at < 15; ++at) {
    loader.start(at / 5, at % 5);
    CHECK(copy_of(loader.next()) == reference[static_cast<size_t>(at)]);
    if (at % 5 == 0 && at > 0) {  // the end of an epoch is the start of the next
      loader.start(at / 5 - 1, 5);
      CHECK(copy_of(loader.next()) == reference[static_cast<size_t>(at)]);
    }
  }
}

TEST_CASE("augmentation of a sample is the same in any batch, and another in another epoch") {
  const auto data = std::make_shared<Numbered>(12);
  LoaderOptions options = busy_options();
  options.shuffle = false;
  const auto rows = [&](int64_t batch_size, int64_t epoch) {
    options.batch_size = batch_size;
    Loader loader(data, options);
    loader.start(epoch, 0);
    std::vector<float> all;
    for (int64_t i = 0; i < 12 / batch_size; ++i) {
      const Copy batch = copy_of(loader.next());
      all.insert(all.end(), batch.input.begin(), batch.input.end());
    }
    return all;
  };
  CHECK(rows(4, 0) == rows(3, 0));
  CHECK(rows(12, 1) == rows(1, 1));
  CHECK(rows(4, 0) != rows(4, 1));
}

TEST_CASE("crop, flip and cutout do what they say, pixel by pixel") {
  const tensor::Shape shape{4, 5, 2};
  std::vector<float> image(40), out(40);
  std::iota(image.begin(), image.end(), 1.0F);
  const auto pixel = [&](const std::vector<float>& from, int64_t y, int64_t x, int64_t c) {
    return y < 0 || y >= 4 || x < 0 || x >= 5 ? 0.0F : from[static_cast<size_t>((y * 5 + x) * 2 + c)];
  };
  std::set<std::pair<int64_t, int64_t>> offsets;
  int flips = 0;
  for (int64_t index = 0; index < 200; ++index) {
    train::crop_and_flip({1, true, 0}, shape, 1, 0, index, image, out);
    int matches = 0;
    for (int64_t dy = -1; dy <= 1; ++dy) {
      for (int64_t dx = -1; dx <= 1; ++dx) {
        for (const bool flip : {false, true}) {
          bool same = true;
          for (int64_t i = 0; i < 40; ++i) {
            const int64_t y = i / 10, x = i / 2 % 5, c = i % 2;
            same = same && out[static_cast<size_t>(i)] == pixel(image, y + dy, (flip ? 4 - x : x) + dx, c);
          }
          if (!same) continue;
          ++matches;
          offsets.insert({dy, dx});
          flips += flip ? 1 : 0;
        }
      }
    }
    CHECK(matches == 1);
  }
  CHECK(offsets.size() == 9);
  CHECK(flips > 70);
  CHECK(flips < 130);

  std::set<size_t> sizes;
  for (int64_t index = 0; index < 50; ++index) {
    out = image;
    train::cutout({0, false, 3}, shape, 1, 0, index, out);
    const auto zeros = static_cast<size_t>(std::count(out.begin(), out.end(), 0.0F));
    CHECK(zeros % 2 == 0);
    CHECK(zeros <= 18);
    CHECK(zeros >= 8);  // its centre lies in the image
    sizes.insert(zeros);
  }
  CHECK(sizes.size() > 1);
}

TEST_CASE("an error of the loader's thread comes out of next, after the good batches, and again") {
  const auto data = std::make_shared<Numbered>(12);
  data->bad_sample = 9;
  Loader loader(data, {.batch_size = 4, .prefetch = 3});
  loader.start(0, 0);
  CHECK(loader.next().index == 0);
  CHECK(loader.next().index == 1);
  CHECK_THROWS_WITH_AS(loader.next(), "sample 9 is bad", base::DataError);
  CHECK_THROWS_AS(loader.next(), base::DataError);
  data->bad_sample = -1;
  loader.start(0, 2);
  CHECK(loader.next().index == 2);
}

TEST_CASE("D26: files are rechecked at the start of each epoch") {
  const auto data = std::make_shared<Numbered>(4);
  Loader loader(data, {.batch_size = 4, .prefetch = 0});
  loader.start(0, 0);
  loader.next();
  loader.stop();
  data->changed = true;
  loader.start(1, 0);
  CHECK_THROWS_WITH_AS(loader.next(), "changed", base::DataError);
}

TEST_CASE("a loader that is dropped or restarted in mid-flight joins its thread") {
  for (int i = 0; i < 50; ++i) {
    Loader loader(std::make_shared<Numbered>(100), {.batch_size = 3, .shuffle = true, .prefetch = i % 4});
    if (i % 5 == 0) continue;  // never started
    loader.start(0, i % 7);
    if (i % 3 == 0) loader.next();
    if (i % 2 == 0) loader.start(1, 0);
    if (i % 7 == 0) loader.stop();
  }
}

TEST_CASE("token ids pass through unchanged, and a batch counts the targets that are not ignored") {
  /// Sample i is the ids i, i + 1, i + 2; its first i targets are ignored.
  class Tokens final : public train::Dataset {
   public:
    Tokens() {
      spec_.input = {3};
      spec_.target = {3};
      spec_.input_type = tensor::DType::i32;
      spec_.classes = 9;
    }
    const train::SampleSpec& spec() const override { return spec_; }
    int64_t size() const override { return 3; }
    void read(int64_t index, std::span<std::byte> input, std::span<std::byte> target) const override {
      for (int32_t i = 0; i < 3; ++i) {
        train::as_ints(input)[static_cast<size_t>(i)] = static_cast<int32_t>(index) + i;
        train::as_ints(target)[static_cast<size_t>(i)] = i < index ? device::k_ignored_target : i;
      }
    }
    std::string describe() const override { return "tokens"; }

   private:
    train::SampleSpec spec_;
  };
  train::LoaderOptions options;
  options.batch_size = 2;
  train::Loader loader(std::make_shared<Tokens>(), options);
  loader.start(0, 0);
  const train::Batch& full = loader.next();
  CHECK(full.targets == 3 + 2);
  CHECK(full.input.i32()[3] == 1);
  CHECK(full.input.i32()[5] == 3);
  CHECK(loader.next().targets == 1);  // one valid row; the row that fills up counts for nothing
}

TEST_CASE("D24: measured normalisation gives mean 0 and deviation 1, and leaves a constant channel's scale alone") {
  class TwoChannels final : public train::Dataset {
   public:
    TwoChannels() {
      spec_.input = {1, 2, 2};
      spec_.classes = 2;
    }
    const train::SampleSpec& spec() const override { return spec_; }
    int64_t size() const override { return 3; }
    void read(int64_t index, std::span<std::byte> bytes, std::span<std::byte>) const override {
      const auto input = train::as_floats(bytes);
      const auto i = static_cast<float>(index);
      input[0] = 1e6F + i;
      input[2] = 1e6F + 3 - i;
      input[1] = input[3] = 7;
    }
    std::string describe() const override { return "two channels"; }

   private:
    train::SampleSpec spec_;
  };
  std::vector<std::string> warnings;
  const auto normalization = train::measure(TwoChannels(), warnings);
  CHECK(normalization.mean == std::vector<float>{1e6F + 1.5F, 7});
  CHECK(normalization.scale[0] == doctest::Approx(1 / std::sqrt(11.0 / 12)));  // values 0 1 2 3 2 1 above a million
  CHECK(normalization.scale[1] == 1.0F);
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0].find("1 of 2 channels never vary (the first is channel 1)") != std::string::npos);
}
