#include "data/memory.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

namespace gpipe::data {

namespace {

class MemoryDataset final : public train::Dataset {
 public:
  explicit MemoryDataset(Memory memory) : memory_(std::move(memory)), elements_(memory_.spec.input.elements()) {
    const size_t stored = std::visit([](const auto& inputs) { return inputs.size(); }, memory_.inputs);
    size_ = static_cast<int64_t>(stored) / elements_;
    GP_CHECK(size_ > 0);
    GP_CHECK_EQ(static_cast<int64_t>(stored), size_ * elements_);
    if (memory_.spec.classes > 0) {
      GP_CHECK_EQ(static_cast<int64_t>(memory_.labels.size()), size_);
    } else {
      GP_CHECK_EQ(static_cast<int64_t>(memory_.values.size()), size_ * memory_.spec.target.elements());
    }
  }

  const train::SampleSpec& spec() const override { return memory_.spec; }
  int64_t size() const override { return size_; }

  void read(int64_t index, std::span<std::byte> bytes, std::span<std::byte> target) const override {
    const std::span<float> input = train::as_floats(bytes);
    GP_CHECK(index >= 0 && index < size_);
    std::visit(
        [&](const auto& inputs) {
          const auto* from = inputs.data() + index * elements_;
          for (size_t i = 0; i < input.size(); ++i) input[i] = static_cast<float>(from[i]);
        },
        memory_.inputs);
    if (memory_.spec.classes > 0) {
      std::memcpy(target.data(), &memory_.labels[static_cast<size_t>(index)], sizeof(int32_t));
    } else {
      const int64_t width = memory_.spec.target.elements();
      std::memcpy(target.data(), memory_.values.data() + index * width, static_cast<size_t>(width) * sizeof(float));
    }
  }

  void recheck() const override { recheck_files(memory_.files); }
  std::string describe() const override { return data::describe(memory_.name, size_, memory_.spec); }

 private:
  Memory memory_;
  int64_t elements_;
  int64_t size_ = 0;
};

}  // namespace

std::unique_ptr<train::Dataset> in_memory(Memory memory) { return std::make_unique<MemoryDataset>(std::move(memory)); }

std::string grouped(int64_t number) {
  const std::string digits = std::to_string(number);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    const size_t left = digits.size() - i;
    if (i > 0 && left % 3 == 0 && digits[i - 1] != '-') text += ',';
    text += digits[i];
  }
  return text;
}

std::string describe(const std::string& name, int64_t samples, const train::SampleSpec& spec) {
  const std::string targets =
      !spec.labelled     ? "no targets"
      : spec.classes > 0 ? fmt::format("{} classes", spec.classes)
                         : fmt::format("{} value{} each", spec.target.elements(), spec.target.elements() == 1 ? "" : "s");
  return fmt::format("{}, {} sample{} {}, {}", name, grouped(samples), samples == 1 ? "" : "s", spec.input, targets);
}

void complain(const base::Tree& arguments, const std::string& path, const char* key, const std::string& message,
              base::Problems& problems) {
  const base::Tree* found = arguments.find(key);
  problems.add(found != nullptr ? found->where() : arguments.where(), base::detail::join_path(path, key), message);
}

void check_range(const std::vector<int64_t>& given, const base::Tree& arguments, const std::string& path,
                 base::Problems& problems) {
  if (given.empty() || (given.size() == 2 && given[0] >= 0 && given[0] < given[1])) return;
  complain(arguments, path, "range", "wanted [first, last) with 0 <= first < last, as in [0, 8000]", problems);
}

void check_shape(const std::vector<int64_t>& given, const base::Tree& arguments, const std::string& path,
                 base::Problems& problems) {
  constexpr int64_t most_elements = int64_t{1} << 31;
  bool good = given.size() < static_cast<size_t>(tensor::Shape::max_rank);
  int64_t elements = 1;
  for (const int64_t extent : given) {
    good = good && extent >= 1 && extent <= most_elements / elements;
    if (good) elements *= extent;
  }
  if (!good) complain(arguments, path, "shape", "wanted one to five extents of at least 1, as in [28, 28, 1]", problems);
}

Range clip_range(const std::vector<int64_t>& given, int64_t total, const std::string& what) {
  if (total == 0) throw base::DataError("{}: there are no samples", what);
  if (given.empty()) return {0, total};
  if (given[0] >= total || given[1] > total) {
    throw base::DataError("{}: range [{}, {}) goes past the {} samples there are", what, given[0], given[1], grouped(total));
  }
  return {given[0], given[1]};
}

void set_labels(train::SampleSpec& spec, const std::vector<int32_t>& labels, int64_t wanted_classes, const std::string& file,
                int64_t first) {
  constexpr int64_t most_classes = 1 << 24;
  const int64_t limit = wanted_classes > 0 ? wanted_classes : most_classes;
  int64_t bad = 0, first_bad = -1;
  int32_t largest = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    largest = std::max(largest, labels[i]);
    if (labels[i] >= 0 && labels[i] < limit) continue;
    if (bad++ == 0) first_bad = static_cast<int64_t>(i);
  }
  if (bad > 0) {
    throw base::DataError("{}: label {} at index {} is not in [0, {}); {} of {} labels are outside", file,
                          labels[static_cast<size_t>(first_bad)], first + first_bad, limit, grouped(bad),
                          grouped(static_cast<int64_t>(labels.size())));
  }
  spec.classes = wanted_classes > 0 ? wanted_classes : std::max<int64_t>(largest + 1, 2);
  spec.target = {};
  spec.target_type = tensor::DType::i32;
}

void check_finite(std::span<const float> values, int64_t per_sample, const std::string& file, int64_t first, const char* what) {
  int64_t bad = 0, first_bad = -1;
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    if (bad++ == 0) first_bad = static_cast<int64_t>(i);
  }
  if (bad == 0) return;
  throw base::DataError("{}: {} {} is {} (place {} of the sample); {} of {} numbers are not finite, all must be", file, what,
                        first + first_bad / per_sample, values[static_cast<size_t>(first_bad)], first_bad % per_sample,
                        grouped(bad), grouped(static_cast<int64_t>(values.size())));
}

}  // namespace gpipe::data
