// Windows over a long row of tokens: what the data sets of running text hand out. A sample is `length` tokens and, at each
// position, the token that follows.
#pragma once

#include "core/train/dataset.h"
#include "data/source.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace gpipe::data {

class TokenRow {
 public:
  TokenRow() = default;
  TokenRow(const TokenRow&) = delete;
  TokenRow& operator=(const TokenRow&) = delete;
  virtual ~TokenRow() = default;
  virtual int64_t size() const = 0;
  /// Tokens [first, first + out.size()); any thread.
  virtual void read(int64_t first, std::span<int32_t> out) const = 0;
};

/// Tokens in memory, in one, two or four bytes each, by what the largest one needs.
class PackedTokens final : public TokenRow {
 public:
  explicit PackedTokens(int64_t vocabulary) : width_(vocabulary <= 1 << 8 ? 1 : vocabulary <= 1 << 16 ? 2 : 4) {}
  void append(std::span<const int32_t> tokens);
  int64_t size() const override { return static_cast<int64_t>(bytes_.size() / width_); }
  void read(int64_t first, std::span<int32_t> out) const override;

 private:
  size_t width_;
  std::vector<uint8_t> bytes_;
};

/// Little-endian tokens of `width` (1, 2 or 4) bytes.
void unpack_tokens(const uint8_t* from, size_t width, std::span<int32_t> out);

struct WindowOptions {
  int64_t length = 0;
  int64_t stride = 0;
  base::Tree range;
};

/// The fields of WindowOptions, for a set of fields of something that derives from it.
template <class T>
void add_window_fields(base::FieldSet<T>& f) {
  f.add("length", &T::length).required().range(1, 1 << 24).unit("tokens").help("of a sample");
  f.add("stride", &T::stride)
      .range(0, 1 << 30)
      .unit("tokens")
      .help("from one sample's begin to the next one's; 0: length, so that they do not overlap");
  f.add("range", &T::range)
      .raw_schema(R"({"type": "array", "items": {"type": "number"}})")
      .help("use only the tokens [first, last), as shares of the whole up to 1 ([0, 0.9]) or counted from 0 ([0, 100000])");
}

void check_windows(const WindowOptions& options, const base::Tree& arguments, const std::string& path, base::Problems& problems);

struct Windows {
  std::unique_ptr<TokenRow> row;
  std::shared_ptr<const train::Tokenizer> tokenizer;  // or null
  int64_t vocabulary = 0;
  std::vector<Stamped> files;
  std::string name;  // "text data/rhyme.txt"
};

/// DataError when not one window fits into the range.
std::unique_ptr<train::Dataset> token_windows(Windows windows, const WindowOptions& options);

}  // namespace gpipe::data
