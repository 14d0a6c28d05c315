// SentencePiece (Kudo and Richardson 2018, arXiv 1808.06226): its models as tokenizers, and training them. The library's own
// headers are included in data/sentencepiece.cpp alone.
#pragma once

#include "core/train/tokenizer.h"
#include "data/source.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace gpipe::data {

/// The model in a file; `stamp` gets the version of the file that was read. DataError where it is none. Text is encoded
/// line-blind: a line end is white space, which the model's normalisation folds into one space.
std::unique_ptr<train::Tokenizer> sentencepiece_tokenizer(const std::string& path, Stamped* stamp = nullptr);

struct SentencePieceTraining {
  std::vector<std::string> files;  // plain or gzip, a sentence a line
  bool bpe = false;                // or unigram
  int64_t vocabulary = 8000;
  double character_coverage = 0.9995;  // share of the characters' occurrences that the vocabulary covers
  std::vector<std::string> symbols;    // never split, never merged: "<de>"
};

/// The trained model as it goes into a file: the same bytes for the same text and options. Ids 0 to 3 are padding, unknown,
/// begin and end; then the symbols in order. One thread. ConfigError where the library refuses (a vocabulary too large for
/// the text), DataError for bad files.
std::string train_sentencepiece(const SentencePieceTraining& options);

/// "token<TAB>score" a line, for people, of a model in the form in which a file holds it.
std::string sentencepiece_vocabulary(const std::string& model);

}  // namespace gpipe::data
