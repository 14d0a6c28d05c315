// From options to data sets: splits, normalisation, and what is wrong with either.
#include "core/train/data.h"

#include "data/dataset_types.h"
#include "tests/support/paths.h"
#include "tests/support/trees.h"

#include <doctest/doctest.h>

#include <cmath>
#include <set>

using namespace gpipe;
using test::choice;
using test::list;
using test::tree;
using test::word;
using train::DataOptions;
using train::DataSets;

namespace {

base::Tree synthetic(std::vector<int64_t> range = {}, const char* classes = "3") {
  base::Tree arguments = tree({{"samples", word("50")}, {"shape", list({4, 4, 2})}, {"classes", word(classes)}});
  if (!range.empty()) arguments.set("range", list(range));
  return choice("synthetic", std::move(arguments));
}

DataSets open(const DataOptions& options, uint64_t seed = 1) {
  base::Problems problems;
  DataSets sets = train::open_data(options, data::dataset_types(), seed, problems);
  problems.throw_if_any();
  return sets;
}

std::vector<float> input(const train::Dataset& set, int64_t index) {
  std::vector<float> values(static_cast<size_t>(set.spec().input.elements()));
  int32_t label = 0;
  set.read(index, std::as_writable_bytes(std::span(values)), std::as_writable_bytes(std::span(&label, 1)));
  return values;
}

template <class E>
std::string refusal(const DataOptions& options) {
  try {
    open(options);
  } catch (const E& error) { return error.what(); }
  return "accepted";
}

void check_contains(const std::string& text, const std::string& part) {
  CHECK_MESSAGE(text.find(part) != std::string::npos, "wanted \"" << part << "\" in: " << text);
}

}  // namespace

TEST_CASE("a split by share is complete and disjoint, and keeps the samples as they were") {
  DataOptions options;
  options.train = synthetic();
  options.validation_split = 0.2;
  const DataSets sets = open(options);
  CHECK(sets.train->size() == 40);
  CHECK(sets.validation->size() == 10);
  std::set<std::vector<float>> all;
  for (int64_t i = 0; i < 40; ++i) all.insert(input(*sets.train, i));
  for (int64_t i = 0; i < 10; ++i) all.insert(input(*sets.validation, i));
  CHECK(all.size() == 50);
  CHECK(input(*open(options, 2).validation, 0) != input(*sets.validation, 0));
}

TEST_CASE("normalisation: measured, given for all channels, given for each") {
  DataOptions options;
  options.train = synthetic();
  options.normalize = word("auto");
  const DataSets sets = open(options);
  CHECK(sets.normalization.mean.size() == 2);
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < sets.train->size(); ++i) {
    auto values = input(*sets.train, i);
    sets.normalization.apply(values);
    for (size_t at = 1; at < values.size(); at += 2) {
      sum += static_cast<double>(values[at]);
      squares += static_cast<double>(values[at]) * static_cast<double>(values[at]);
    }
  }
  CHECK(std::abs(sum / 800) < 1e-5);
  CHECK(squares / 800 == doctest::Approx(1).epsilon(1e-5));

  options.normalize = tree({{"mean", word("0.5")}, {"std", test::words({"2", "4"})}});
  const auto given = open(options).normalization;
  std::vector<float> values{1, 2};
  given.apply(values);
  CHECK(values == std::vector<float>{0.25F, 0.375F});
}

TEST_CASE("normalisation that does not fit is told with its place") {
  DataOptions options;
  options.train = synthetic();
  const auto said = [&](base::Tree normalize) {
    options.normalize = std::move(normalize);
    return refusal<base::ConfigError>(options);
  };
  check_contains(said(word("sometimes")), "wanted auto, or a map");
  check_contains(said(tree({{"mean", word("0")}})), "data.normalize.std");
  check_contains(said(tree({{"mean", word("0")}, {"std", word("0")}})), "data.normalize.std");
  check_contains(said(tree({{"mean", word("0")}, {"std", word(".nan")}})), "data.normalize.std");
  check_contains(said(tree({{"mean", test::words({"1", "2", "3"})}, {"std", word("1")}})), "[4, 4, 2]");
  check_contains(said(tree({{"mean", word("0")}, {"std", word("1")}, {"max", word("1")}})), "data.normalize.max");
}

TEST_CASE("D30, D31: empty and shared parts") {
  DataOptions options;
  options.train = synthetic();
  options.validation_split = 0.995;
  check_contains(refusal<base::DataError>(options), "leaves no sample to train on");
  options.validation_split = 0.001;
  CHECK(open(options).validation == nullptr);
  CHECK(open(options).warnings.size() == 1);

  options.validation_split = 0;
  options.train = synthetic({0, 30});
  options.validation = synthetic({30, 50});
  CHECK(open(options).warnings.empty());
  options.validation = synthetic({29, 50});
  REQUIRE(open(options).warnings.size() == 1);
  check_contains(open(options).warnings[0], "share samples");
  options.validation = options.train;
  CHECK(open(options).warnings.size() == 1);
  options.validation_split = 0.5;
  check_contains(refusal<base::ConfigError>(options), "both given");
}

TEST_CASE("sets that do not belong together, unknown sets, augmentation of what is no image") {
  DataOptions options;
  options.train = synthetic({0, 30});
  options.validation = choice("synthetic", tree({{"shape", list({4})}}));
  check_contains(refusal<base::DataError>(options), "the validation samples are [4], the training samples [4, 4, 2]");
  options.validation = synthetic({30, 50}, "7");
  check_contains(refusal<base::DataError>(options), "the validation set has 7 classes, the training set 3");

  options = {};
  options.train = choice("synthetik", {});
  check_contains(refusal<base::ConfigError>(options), "synthetic");
  options.train = choice("synthetic", tree({{"shape", list({4})}}));
  options.horizontal_flip = true;
  check_contains(refusal<base::ConfigError>(options), "need images [H, W, C]; the samples are [4]");
  options.train = synthetic();
  options.cutout = 5;
  check_contains(refusal<base::ConfigError>(options), "a square of 5 does not fit");
}

TEST_CASE("the digits train and validate through the loader") {
  DataOptions options;
  options.train =
      choice("csv", tree({{"path", word((test::source_dir() / "data/digits.csv").string())}, {"shape", list({8, 8, 1})}}));
  options.validation_split = 0.2;
  options.normalize = word("auto");
  const DataSets sets = open(options);
  train::Loader loader(sets.train, train::training_loader(options, sets.normalization, 32, 1));
  CHECK(loader.batches_per_epoch() == 44);
  loader.start(0, 0);
  const train::Batch& batch = loader.next();
  CHECK(batch.input.shape == tensor::Shape{32, 8, 8, 1});
  CHECK(batch.target.shape == tensor::Shape{32});
  train::Loader validation(sets.validation, train::validation_loader(options, sets.normalization, 32));
  CHECK(validation.batches_per_epoch() == 12);
  validation.start(0, 0);
  CHECK(validation.next().samples == 32);
}
