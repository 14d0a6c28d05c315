#include "data/token_windows.h"

#include "data/memory.h"

#include <cmath>
#include <cstring>
#include <utility>

namespace gpipe::data {

namespace {

/// The two numbers of a range, or none.
std::optional<std::pair<double, double>> read_range(const base::Tree& range, const std::string& path, base::Problems& problems) {
  base::FieldInfo info;
  info.low = 0;
  if (!range.is_list() || range.items().size() != 2) return std::nullopt;
  const auto first = base::detail::read_number(range.items()[0], path, info, problems);
  const auto last = base::detail::read_number(range.items()[1], path, info, problems);
  if (!first || !last) return std::nullopt;
  return std::pair(*first, *last);
}

Range tokens_of(const base::Tree& range, int64_t total, const std::string& name) {
  if (range.is_null()) return {0, total};
  base::Problems problems;
  const auto [first, last] = read_range(range, "range", problems).value();
  if (last <= 1) {  // shares
    const auto all = static_cast<double>(total);
    return {static_cast<int64_t>(first * all), static_cast<int64_t>(last * all)};
  }
  if (last > static_cast<double>(total))
    throw base::DataError("{}: range [{:.0f}, {:.0f}) goes past the {} tokens there are", name, first, last, grouped(total));
  return {static_cast<int64_t>(first), static_cast<int64_t>(last)};
}

class WindowDataset final : public train::Dataset {
 public:
  WindowDataset(Windows windows, const WindowOptions& options)
      : windows_(std::move(windows)),
        length_(options.length),
        stride_(options.stride > 0 ? options.stride : options.length),
        range_(tokens_of(options.range, windows_.row->size(), windows_.name)) {
    if (range_.size() <= length_) {
      throw base::DataError("{}: {} tokens are too few for a sample of {} and the token after it; lower length, or widen range",
                            windows_.name, grouped(range_.size()), length_);
    }
    size_ = (range_.size() - length_ - 1) / stride_ + 1;
    spec_.input = spec_.target = tensor::Shape({length_});
    spec_.input_type = tensor::DType::i32;
    spec_.classes = windows_.vocabulary;
  }

  const train::SampleSpec& spec() const override { return spec_; }
  int64_t size() const override { return size_; }
  void read(int64_t index, std::span<std::byte> input, std::span<std::byte> target) const override {
    GP_CHECK(index >= 0 && index < size_);
    const int64_t first = range_.first + index * stride_;
    const std::span<int32_t> tokens = train::as_ints(input), next = train::as_ints(target);
    windows_.row->read(first, tokens);
    std::copy(tokens.begin() + 1, tokens.end(), next.begin());
    windows_.row->read(first + length_, next.last(1));
  }
  void recheck() const override { recheck_files(windows_.files); }
  const train::Tokenizer* tokenizer() const override { return windows_.tokenizer.get(); }
  std::string describe() const override {
    const std::string tokens =
        windows_.tokenizer ? windows_.tokenizer->describe() : fmt::format("{} different", grouped(windows_.vocabulary));
    return fmt::format("{}, {} sample{} of {} tokens, {} apart ({} tokens, {})", windows_.name, grouped(size_),
                       size_ == 1 ? "" : "s", length_, stride_, grouped(range_.size()), tokens);
  }

 private:
  Windows windows_;
  int64_t length_, stride_;
  Range range_;
  int64_t size_ = 0;
  train::SampleSpec spec_;
};

}  // namespace

void unpack_tokens(const uint8_t* from, size_t width, std::span<int32_t> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    uint32_t token = 0;
    for (size_t b = 0; b < width; ++b) token |= static_cast<uint32_t>(from[i * width + b]) << (8 * b);
    out[i] = static_cast<int32_t>(token);
  }
}

void PackedTokens::append(std::span<const int32_t> tokens) {
  bytes_.reserve(bytes_.size() + tokens.size() * width_);
  for (const int32_t token : tokens) {
    for (size_t b = 0; b < width_; ++b) bytes_.push_back(static_cast<uint8_t>(static_cast<uint32_t>(token) >> (8 * b)));
  }
}

void PackedTokens::read(int64_t first, std::span<int32_t> out) const {
  GP_CHECK(first >= 0 && first + static_cast<int64_t>(out.size()) <= size());
  unpack_tokens(bytes_.data() + static_cast<size_t>(first) * width_, width_, out);
}

void check_windows(const WindowOptions& options, const base::Tree& arguments, const std::string& path, base::Problems& problems) {
  if (options.range.is_null()) return;
  const size_t before = problems.errors().size();
  const auto range = read_range(options.range, base::detail::join_path(path, "range"), problems);
  if (problems.errors().size() != before) return;
  const auto whole = [](double x) { return x == std::floor(x); };
  if (range && range->first < range->second && (range->second <= 1 || (whole(range->first) && whole(range->second)))) return;
  complain(arguments, path, "range",
           "wanted [first, last) with first < last, as shares up to 1 ([0, 0.9]) or as numbers of tokens ([0, 100000])",
           problems);
}

std::unique_ptr<train::Dataset> token_windows(Windows windows, const WindowOptions& options) {
  return std::make_unique<WindowDataset>(std::move(windows), options);
}

}  // namespace gpipe::data
