// A whole text file, and its tokens: shared by the data set `text` and by `gpipe-train tokenize`.
#pragma once

#include "core/train/tokenizer.h"
#include "data/source.h"

#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace gpipe::data {

/// The bytes of a plain or gzip file, without a byte-order mark; DataError for an empty one.
std::string read_text(const std::string& path, Stamped* stamp = nullptr);

/// Calls `take` with the tokens of `text`, part by part. A tokenizer that has an end token (a SentencePiece model) gets each
/// line on its own, and its end token after it; others get every byte. `path` is for messages alone.
void encode_text(const train::Tokenizer& tokenizer, const std::string& text, const std::string& path,
                 const std::function<void(std::span<const int32_t>)>& take);

}  // namespace gpipe::data
