// The tokenizers of this program: bytes, characters, and SentencePiece models (data/sentencepiece.h).
#pragma once

#include "core/train/tokenizer.h"

#include <memory>
#include <string_view>

namespace gpipe::data {

/// 256 tokens: the bytes. Takes every text.
std::unique_ptr<train::Tokenizer> byte_tokenizer();

/// The Unicode code points that occur in `text`, in ascending order. DataError for bad UTF-8, naming `file` and the byte. A
/// code point that does not occur there cannot be encoded later.
std::unique_ptr<train::Tokenizer> character_tokenizer(std::string_view text, const std::string& file);

}  // namespace gpipe::data
