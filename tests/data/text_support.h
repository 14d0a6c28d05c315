// What the tests of text share: reading a sample of tokens, files of tokens, and a small trained model.
#pragma once

#include "data/sentencepiece.h"
#include "tests/data/support.h"

#include <cstdint>
#include <vector>

namespace gpipe::test {

struct Tokens {
  std::vector<int32_t> input, target;
};

inline Tokens tokens(const train::Dataset& set, int64_t index, int bucket = 0) {
  Tokens result;
  result.input.resize(static_cast<size_t>(set.spec().bucket(bucket).input.elements()));
  result.target.resize(static_cast<size_t>(set.spec().bucket(bucket).target.elements()));
  set.read(index, std::as_writable_bytes(std::span(result.input)), std::as_writable_bytes(std::span(result.target)));
  return result;
}

template <class T>
std::string little_endian(const std::vector<T>& values) {
  std::string bytes;
  for (const T value : values)
    for (size_t b = 0; b < sizeof(T); ++b) bytes.push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * b)));
  return bytes;
}

inline std::string rhyme_path() { return (source_dir() / "data/rhyme.txt").string(); }

inline std::string rhyme_model(bool bpe, int64_t vocabulary) {
  return data::train_sentencepiece({{rhyme_path()}, bpe, vocabulary, 0.9995, {"<de>", "<fr>"}});
}

}  // namespace gpipe::test
