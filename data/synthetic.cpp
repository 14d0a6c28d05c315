// Samples made from a seed: for trying out networks, for benches, for tests. Every number is a pure function of
// (seed, sample, element), so nothing is stored and any range of samples can be used on its own.
//
//   classes > 0:  x = separation * prototype[class] + noise     prototype, noise uniform in [-sqrt 3, sqrt 3): variance 1
//   classes = 0:  x = noise,  y = w . x / sqrt(F) per target    a linear teacher
//   tokens > 0:   x = ids [length], y = p(x) at each position   ids uniform below `tokens`, p a permutation of them
#include "core/base/rng.h"
#include "data/dataset_types.h"
#include "data/memory.h"

#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

namespace gpipe::data {

namespace {

struct SyntheticOptions {
  int64_t samples = 1024;
  std::vector<int64_t> shape = {16};
  int64_t classes = 10;
  int64_t targets = 1;
  int64_t tokens = 0;
  int64_t length = 16;
  double separation = 1.0;
  int64_t seed = 1;
  std::vector<int64_t> range;
};

const base::FieldSet<SyntheticOptions>& synthetic_fields() {
  static const auto fields = [] {
    base::FieldSet<SyntheticOptions> f{"synthetic"};
    f.add("samples", &SyntheticOptions::samples).range(1, 4294967295.0).help("how many there are");
    f.add("shape", &SyntheticOptions::shape).help("shape of a sample, as in [28, 28, 1]");
    f.add("classes", &SyntheticOptions::classes).range(0, 1 << 20).help("number of classes; 0: values to predict instead");
    f.add("targets", &SyntheticOptions::targets).range(1, 1 << 20).help("values of a sample, when classes is 0");
    f.add("tokens", &SyntheticOptions::tokens).range(0, 1 << 20).help("instead: size of a vocabulary; samples are token ids");
    f.add("length", &SyntheticOptions::length).range(1, 1 << 20).unit("tokens").help("of a sample, where there are tokens");
    f.add("separation", &SyntheticOptions::separation).range(0, 1000).help("distance of the classes, in units of the noise");
    f.add("seed", &SyntheticOptions::seed).at_least(0).help("another seed, another task; train and validate on ranges of one");
    f.add("range", &SyntheticOptions::range).help(range_help);
    return f;
  }();
  return fields;
}

class SyntheticDataset final : public train::Dataset {
 public:
  SyntheticDataset(const SyntheticOptions& options, Range range)
      : seed_(static_cast<uint64_t>(options.seed)), separation_(static_cast<float>(options.separation)), range_(range) {
    spec_.input = options.shape.empty() ? tensor::Shape({16}) : tensor::Shape(options.shape);
    spec_.classes = options.classes;
    if (options.tokens > 0) {
      spec_ = {{options.length}, {options.length}, tensor::DType::i32, tensor::DType::i32, options.tokens, {}};
      shuffle_tokens();
    } else if (options.classes == 0) {
      spec_.target = tensor::Shape({options.targets});
      spec_.target_type = tensor::DType::f32;
    }
  }

  const train::SampleSpec& spec() const override { return spec_; }
  int64_t size() const override { return range_.size(); }
  std::string describe() const override { return data::describe(fmt::format("synthetic, seed {}", seed_), size(), spec_); }

  void read(int64_t index, std::span<std::byte> bytes, std::span<std::byte> target) const override {
    GP_CHECK(index >= 0 && index < size());
    const auto sample = static_cast<uint64_t>(range_.first + index);
    if (!permutation_.empty()) return read_tokens(sample, train::as_ints(bytes), train::as_ints(target));
    const std::span<float> input = train::as_floats(bytes);
    uniform(noise_stream, sample, input);
    if (spec_.classes > 0) {
      const base::Philox pick(seed_, base::Purpose::synthetic, label_stream, 0);
      const auto label = static_cast<int32_t>(pick.below(sample, static_cast<uint32_t>(spec_.classes)));
      const base::Philox prototype(seed_, base::Purpose::synthetic, prototype_stream, static_cast<uint64_t>(label));
      for_words(prototype, input.size(), [&](size_t i, float u) { input[i] += separation_ * u; });
      std::memcpy(target.data(), &label, sizeof label);
      return;
    }
    for (int64_t t = 0; t < spec_.target.elements(); ++t) {
      const base::Philox teacher(seed_, base::Purpose::synthetic, teacher_stream, static_cast<uint64_t>(t));
      double sum = 0;
      for_words(teacher, input.size(), [&](size_t i, float u) { sum += static_cast<double>(u) * static_cast<double>(input[i]); });
      const auto value = static_cast<float>(sum / std::sqrt(static_cast<double>(input.size())));
      std::memcpy(target.data() + static_cast<size_t>(t) * sizeof value, &value, sizeof value);
    }
  }

 private:
  static constexpr uint64_t noise_stream = 1, label_stream = 2, prototype_stream = 3, teacher_stream = 4;
  static constexpr uint64_t token_stream = 5, permutation_stream = 6;

  void shuffle_tokens() {
    permutation_.resize(static_cast<size_t>(spec_.classes));
    std::iota(permutation_.begin(), permutation_.end(), 0);
    const base::Philox random(seed_, base::Purpose::synthetic, permutation_stream, 0);
    for (size_t left = permutation_.size(); left > 1; --left)
      std::swap(permutation_[left - 1], permutation_[random.below(left, static_cast<uint32_t>(left))]);
  }

  void read_tokens(uint64_t sample, std::span<int32_t> input, std::span<int32_t> target) const {
    const base::Philox random(seed_, base::Purpose::synthetic, token_stream, sample);
    for (size_t t = 0; t < input.size(); ++t) {
      const uint32_t id = random.below(t, static_cast<uint32_t>(permutation_.size()));
      input[t] = static_cast<int32_t>(id);
      target[t] = permutation_[id];
    }
  }

  /// Calls use(i, number) with numbers of variance 1.
  template <class Use>
  static void for_words(const base::Philox& stream, size_t count, Use&& use) {
    constexpr float width = 3.4641016f;  // 2 sqrt 3
    for (size_t block = 0; block * 4 < count; ++block) {
      const auto words = stream.block(block);
      for (size_t lane = 0; lane < 4 && block * 4 + lane < count; ++lane) {
        use(block * 4 + lane, width * (base::Philox::to_unit(words[lane]) - 0.5f));
      }
    }
  }

  void uniform(uint64_t stream, uint64_t sample, std::span<float> out) const {
    for_words(base::Philox(seed_, base::Purpose::synthetic, stream, sample), out.size(), [&](size_t i, float u) { out[i] = u; });
  }

  uint64_t seed_;
  float separation_;
  Range range_;
  train::SampleSpec spec_;
  std::vector<int32_t> permutation_;  // of token ids; empty: samples are numbers
};

std::unique_ptr<train::Dataset> open_synthetic(const base::Tree& arguments, const std::string& path, base::Problems& problems) {
  SyntheticOptions options;
  const size_t before = problems.errors().size();
  synthetic_fields().read(arguments, path, options, problems);
  check_range(options.range, arguments, path, problems);
  check_shape(options.shape, arguments, path, problems);
  if (options.tokens == 1)
    problems.add(arguments.where(), base::detail::join_path(path, "tokens"), "1: one token leaves nothing to learn");
  for (const char* key : {"shape", "classes", "targets", "separation"})
    if (options.tokens > 0 && arguments.find(key) != nullptr)
      problems.add(arguments.key_where(key), base::detail::join_path(path, key),
                   "samples of `tokens` have `length` ids and as many targets; leave it out");
  if (options.classes == 1)
    problems.add(arguments.where(), base::detail::join_path(path, "classes"),
                 "1: one class leaves nothing to learn; wanted 0 or at least 2");
  if (problems.errors().size() != before) return nullptr;
  return std::make_unique<SyntheticDataset>(options, clip_range(options.range, options.samples, "synthetic"));
}

}  // namespace

const train::DatasetType& synthetic_dataset() {
  static const train::DatasetType type{"synthetic", "separable classes, a linear task or tokens to exchange, made from a seed",
                                       open_synthetic, [] { return synthetic_fields().table(); }};
  return type;
}

}  // namespace gpipe::data
