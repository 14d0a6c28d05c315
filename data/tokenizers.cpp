#include "data/tokenizers.h"

#include "core/base/error.h"
#include "core/base/utf8.h"

#include <algorithm>

namespace gpipe::data {

namespace {

void check_id(int32_t id, int64_t size) {
  if (id < 0 || id >= size) throw base::DataError("token {} is not in [0, {})", id, size);
}

class ByteTokenizer final : public train::Tokenizer {
 public:
  int64_t size() const override { return 256; }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    ids.reserve(ids.size() + text.size());
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  }
  std::string decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (const int32_t id : ids) {
      check_id(id, size());
      text.push_back(static_cast<char>(id));
    }
    return text;
  }
  int32_t id_of(std::string_view token) const override { return token.size() == 1 ? static_cast<unsigned char>(token[0]) : -1; }
  std::string identity() const override { return "bytes"; }
  std::string describe() const override { return "256 bytes"; }
};

class CharacterTokenizer final : public train::Tokenizer {
 public:
  CharacterTokenizer(std::string_view text, const std::string& file) : of_(code_points, -1) {
    size_t at = 0;
    char32_t c = 0;
    while (base::next_code_point(text, at, c)) of_[c] = 0;
    if (at < text.size()) throw base::DataError("{}: byte {} begins no UTF-8 character; wanted UTF-8", file, at);
    for (char32_t i = 0; i < code_points; ++i) {
      if (of_[i] < 0) continue;
      of_[i] = static_cast<int32_t>(characters_.size());
      characters_.push_back(i);
    }
  }

  int64_t size() const override { return static_cast<int64_t>(characters_.size()); }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    ids.reserve(ids.size() + text.size());
    size_t at = 0;
    char32_t c = 0;
    while (at < text.size()) {
      const size_t here = at;
      if (!base::next_code_point(text, at, c)) throw base::DataError("byte {} begins no UTF-8 character; wanted UTF-8", here);
      if (of_[c] < 0) {
        throw base::DataError("byte {}: the character {} is not among the {} of the vocabulary", here, base::code_point_name(c),
                              size());
      }
      ids.push_back(of_[c]);
    }
  }
  std::string decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (const int32_t id : ids) {
      check_id(id, size());
      base::append_utf8(text, characters_[static_cast<size_t>(id)]);
    }
    return text;
  }
  int32_t id_of(std::string_view token) const override {
    size_t at = 0;
    char32_t c = 0;
    return base::next_code_point(token, at, c) && at == token.size() ? of_[c] : -1;
  }
  std::string identity() const override {
    std::string text = "characters ";
    for (const char32_t c : characters_) base::append_utf8(text, c);
    return text;
  }
  std::string describe() const override { return fmt::format("{} characters", size()); }

 private:
  static constexpr char32_t code_points = 0x110000;
  std::vector<int32_t> of_;  // by code point; -1: none
  std::vector<char32_t> characters_;
};

}  // namespace

std::unique_ptr<train::Tokenizer> byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

std::unique_ptr<train::Tokenizer> character_tokenizer(std::string_view text, const std::string& file) {
  return std::make_unique<CharacterTokenizer>(text, file);
}

}  // namespace gpipe::data
