#include "core/train/data.h"

#include "core/base/choice.h"
#include "core/train/order.h"

#include <fmt/ranges.h>

#include <cmath>
#include <optional>
#include <utility>

namespace gpipe::train {

namespace {

class Subset final : public Dataset {
 public:
  Subset(std::shared_ptr<const Dataset> whole, std::vector<int64_t> indices, std::string name)
      : whole_(std::move(whole)), indices_(std::move(indices)), name_(std::move(name)) {}

  const SampleSpec& spec() const override { return whole_->spec(); }
  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  int bucket_of(int64_t index) const override { return whole_->bucket_of(indices_.at(static_cast<size_t>(index))); }
  void read(int64_t index, std::span<std::byte> input, std::span<std::byte> target) const override {
    whole_->read(indices_.at(static_cast<size_t>(index)), input, target);
  }
  void recheck() const override { whole_->recheck(); }
  const Tokenizer* tokenizer() const override { return whole_->tokenizer(); }
  std::string describe() const override { return fmt::format("{} samples ({}) of {}", size(), name_, whole_->describe()); }

 private:
  std::shared_ptr<const Dataset> whole_;
  std::vector<int64_t> indices_;
  std::string name_;
};

std::shared_ptr<const Dataset> open_one(const base::Tree& tree, const std::string& path,
                                        std::span<const DatasetType* const> types, base::Problems& problems) {
  std::vector<std::string> names;
  for (const DatasetType* type : types) names.push_back(type->name);
  const auto choice = base::read_choice(tree, path, "data set", names, problems);
  if (!choice) return nullptr;
  for (const DatasetType* type : types) {
    if (type->name == choice->name) return type->open(choice->arguments, path + "." + choice->name, problems);
  }
  return nullptr;
}

std::optional<std::vector<double>> read_numbers(const base::Tree& map, const char* key, double low, base::Problems& problems) {
  const std::string path = fmt::format("data.normalize.{}", key);
  const base::Tree* tree = map.find(key);
  base::FieldInfo info;
  info.key = key;
  info.low = low;
  info.open_low = low == 0;  // a standard deviation of 0 would divide by it
  std::vector<base::Tree> items;
  if (tree != nullptr) items = tree->is_list() ? tree->items() : std::vector<base::Tree>{*tree};
  if (items.empty()) {
    problems.add(tree != nullptr ? tree->where() : map.where(), path, "wanted a number, or a list with one for each channel");
    return std::nullopt;
  }
  std::vector<double> numbers;
  for (const base::Tree& item : items) {
    if (const auto number = base::detail::read_number(item, path, info, problems)) numbers.push_back(*number);
  }
  return numbers.size() == items.size() ? std::optional(numbers) : std::nullopt;
}

Normalization read_normalization(const base::Tree& tree, const Dataset& train, std::vector<std::string>& warnings,
                                 base::Problems& problems) {
  if (tree.is_null()) return {};
  if (tree.is_scalar() && tree.text() == "auto") return measure(train, warnings);
  if (!tree.is_map()) {
    problems.add(tree.where(), "data.normalize", "wanted auto, or a map as in {mean: [0.5], std: [0.25]}");
    return {};
  }
  for (const auto& [key, value] : tree.members()) {
    if (key != "mean" && key != "std") {
      problems.add(tree.key_where(key), "data.normalize." + key, "unknown key; there are mean and std");
    }
  }
  const auto mean = read_numbers(tree, "mean", -1e30, problems);
  const auto deviation = read_numbers(tree, "std", 0, problems);
  if (!mean || !deviation) return {};
  const auto channels = static_cast<size_t>(train.spec().input.back());
  const auto fits = [&](size_t count) { return count == 1 || count == channels; };
  if (!fits(mean->size()) || !fits(deviation->size())) {
    problems.add(tree.where(), "data.normalize",
                 fmt::format("{} means and {} deviations for samples {} of {} channels; give 1 or {}", mean->size(),
                             deviation->size(), train.spec().input, channels, channels));
    return {};
  }
  Normalization result;
  for (size_t c = 0; c < std::max(mean->size(), deviation->size()); ++c) {
    result.mean.push_back(static_cast<float>((*mean)[mean->size() == 1 ? 0 : c]));
    result.scale.push_back(static_cast<float>(1.0 / (*deviation)[deviation->size() == 1 ? 0 : c]));
  }
  return result;
}

void check_augmentation(const DataOptions& options, const SampleSpec& spec, const base::Location& where,
                        base::Problems& problems) {
  const tensor::Shape& shape = spec.input;
  if (spec.input_type == tensor::DType::i32 && !options.normalize.is_null()) {
    problems.add(options.normalize.where(), "data.normalize", "the samples are token ids: there is nothing to normalise");
    return;
  }
  const bool wanted = options.random_crop > 0 || options.horizontal_flip || options.cutout > 0;
  if (wanted && shape.rank() != 3) {
    problems.add(where, "data",
                 fmt::format("random_crop, horizontal_flip and cutout need images [H, W, C]; the samples are {}", shape));
    return;
  }
  if (!wanted) return;
  if (spec.target.rank() > 0) {
    problems.add(
        where, "data",
        fmt::format("random_crop, horizontal_flip and cutout would move images away from their targets {}", spec.target));
    return;
  }
  const int64_t side = std::min(shape[0], shape[1]);
  if (options.random_crop > side) {
    problems.add(where, "data.random_crop",
                 fmt::format("padding {} is more than the images {} have", options.random_crop, shape));
  }
  if (options.cutout > side) {
    problems.add(where, "data.cutout", fmt::format("a square of {} does not fit images {}", options.cutout, shape));
  }
}

void check_same_kind(const Dataset& train_set, const Dataset& validation_set) {
  const SampleSpec &train = train_set.spec(), &validation = validation_set.spec();
  if (train.input != validation.input || train.input_type != validation.input_type) {
    throw base::DataError("the validation samples are {}, the training samples {}", validation.input, train.input);
  }
  if (train.target != validation.target || train.target_type != validation.target_type) {
    throw base::DataError("the validation targets are {} {}, the training targets {} {}", tensor::name_of(validation.target_type),
                          validation.target, tensor::name_of(train.target_type), train.target);
  }
  if (!validation.narrower.empty() && validation.narrower != train.narrower) {
    throw base::DataError("the validation set has other buckets than the training set; give both the same, or validation none");
  }
  if (validation.classes > train.classes) {
    throw base::DataError("the validation set has {} classes, the training set {}; give both sets `classes` if that is meant",
                          validation.classes, train.classes);
  }
  if (train.class_names != validation.class_names) {
    throw base::DataError("the classes of the two sets have different names: training {}, validation {}",
                          fmt::join(train.class_names, ", "), fmt::join(validation.class_names, ", "));
  }
  const Tokenizer *a = train_set.tokenizer(), *b = validation_set.tokenizer();
  if (a != nullptr && b != nullptr && a->identity() != b->identity()) {
    throw base::DataError("the validation text has other tokens ({}) than the training text ({}); give both the same vocabulary",
                          b->describe(), a->describe());
  }
}

/// Are the trees equal, leaving out the key `range`?
bool same_but_range(const base::Tree& a, const base::Tree& b) {
  if (a.kind() != b.kind() || a.text() != b.text() || a.items().size() != b.items().size()) return false;
  for (size_t i = 0; i < a.items().size(); ++i) {
    if (!same_but_range(a.items()[i], b.items()[i])) return false;
  }
  const auto covers = [](const base::Tree& all, const base::Tree& some) {
    for (const auto& [key, value] : some.members()) {
      const base::Tree* other = all.find(key);
      if (key != "range" && (other == nullptr || !same_but_range(*other, value))) return false;
    }
    return true;
  };
  return covers(a, b) && covers(b, a);
}

std::optional<std::pair<double, double>> range_of(const base::Tree& choice) {
  if (!choice.is_map() || choice.members().empty()) return std::nullopt;
  const base::Tree* range = choice.members()[0].second.find("range");
  if (range == nullptr || !range->is_list() || range->items().size() != 2) return std::nullopt;
  return std::pair(std::stod(range->items()[0].text()), std::stod(range->items()[1].text()));  // opened, so they are numbers
}

bool share_samples(const base::Tree& train, const base::Tree& validation) {
  if (!same_but_range(train, validation)) return false;
  const auto a = range_of(train), b = range_of(validation);
  return !a || !b || (a->first < b->second && b->first < a->second);
}

void split(const DataOptions& options, uint64_t seed, DataSets& sets) {
  const int64_t size = sets.train->size();
  SplitIndices indices = split_indices(size, options.validation_split, seed);
  if (indices.kept.empty()) {
    throw base::DataError("{}: validation_split {} leaves no sample to train on", sets.train->describe(),
                          options.validation_split);
  }
  if (indices.held_out.empty()) {
    sets.warnings.push_back(
        fmt::format("validation_split {} of {} samples holds out none: there is no validation", options.validation_split, size));
    return;
  }
  const std::shared_ptr<const Dataset> whole = sets.train;
  sets.train = subset(whole, std::move(indices.kept), fmt::format("all but {}", indices.held_out.size()));
  sets.validation = subset(whole, std::move(indices.held_out), fmt::format("held out by seed {}", seed));
}

}  // namespace

std::shared_ptr<const Dataset> subset(std::shared_ptr<const Dataset> whole, std::vector<int64_t> indices, std::string name) {
  return std::make_shared<Subset>(std::move(whole), std::move(indices), std::move(name));
}

DataSets open_data(const DataOptions& options, std::span<const DatasetType* const> types, uint64_t seed,
                   base::Problems& problems) {
  const size_t before = problems.errors().size();
  DataSets sets;
  const bool separate = !options.validation.is_null();
  if (separate && options.validation_split > 0) {
    problems.add(options.validation.where(), "data.validation", "validation and validation_split are both given; keep one");
  }
  sets.train = open_one(options.train, "data.train", types, problems);
  if (separate) sets.validation = open_one(options.validation, "data.validation", types, problems);
  if (problems.errors().size() != before) return {};

  if (separate) {
    check_same_kind(*sets.train, *sets.validation);
    if (share_samples(options.train, options.validation)) {
      sets.warnings.push_back("data.train and data.validation share samples: validation will look better than it is");
    }
  } else if (options.validation_split > 0) {
    split(options, seed, sets);
  }
  check_augmentation(options, sets.train->spec(), options.train.where(), problems);
  if (problems.errors().size() != before) return {};
  sets.normalization = read_normalization(options.normalize, *sets.train, sets.warnings, problems);
  if (problems.errors().size() != before) return {};
  return sets;
}

LoaderOptions training_loader(const DataOptions& options, const Normalization& normalization, int64_t batch_size, uint64_t seed) {
  return {batch_size,
          options.shuffle,
          options.drop_last,
          options.prefetch,
          seed,
          {options.random_crop, options.horizontal_flip, options.cutout},
          normalization};
}

LoaderOptions validation_loader(const DataOptions& options, const Normalization& normalization, int64_t batch_size) {
  LoaderOptions loader;
  loader.batch_size = batch_size;
  loader.prefetch = options.prefetch;
  loader.normalization = normalization;
  return loader;
}

}  // namespace gpipe::train
