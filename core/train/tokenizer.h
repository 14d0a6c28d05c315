// Tokenizer: text to token ids and back. What a data set of text was read with; whoever continues a prompt or prints a
// prediction asks the data set for it. Immutable once made; any thread may call.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gpipe::train {

/// Ids with a meaning of their own; -1: there is none.
struct SpecialTokens {
  int32_t padding = -1;
  int32_t unknown = -1;
  int32_t begin = -1;
  int32_t end = -1;
};

class Tokenizer {
 public:
  Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;
  virtual ~Tokenizer() = default;

  virtual int64_t size() const = 0;  // ids are 0 .. size() - 1
  virtual SpecialTokens special() const { return {}; }
  /// Appends the ids of `text`, no special ones added. DataError that names the byte (counted from 0) where `text` holds what
  /// this tokenizer cannot express.
  virtual void encode(std::string_view text, std::vector<int32_t>& ids) const = 0;
  /// Ids outside are a DataError; special ones give nothing.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  /// The id of one token as text ("<de>"); -1: it is none.
  virtual int32_t id_of(std::string_view token) const = 0;
  /// Equal for tokenizers that give the same ids to every text.
  virtual std::string identity() const = 0;
  virtual std::string describe() const = 0;  // "65 characters"
};

}  // namespace gpipe::train
