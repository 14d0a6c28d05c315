// What `tokenize` is asked, as flags. Any thread.
#pragma once

#include "core/base/fields.h"

#include <cstdint>
#include <string>
#include <vector>

namespace gpipe::app {

/// One of `output` (train a model), `encode`, `decode`, `bin` is given.
struct TokenizeOptions {
  enum class Kind { unigram, bpe };

  std::vector<std::string> input;  // files, plain or gzip
  std::string output;              // PREFIX: PREFIX.model and PREFIX.vocab
  Kind kind = Kind::unigram;
  int64_t vocabulary = 8000;
  double character_coverage = 0.9995;
  std::string symbols;  // with commas
  std::string model;    // a file
  std::string encode, decode, bin;
};

/// The keys are the flags.
base::FieldSet<TokenizeOptions> tokenize_fields();

}  // namespace gpipe::app
