// What the tests of the readers share: files with given bytes, opening by name, reading a sample.
#pragma once

#include "core/train/dataset.h"
#include "data/dataset_types.h"
#include "tests/support/paths.h"
#include "tests/support/trees.h"

#include <cstring>
#include <fstream>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>
#include <zlib.h>

namespace gpipe::test {

inline void put(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

inline std::string bytes(std::initializer_list<int> values) {
  std::string text;
  for (const int value : values) text.push_back(static_cast<char>(value));
  return text;
}

inline std::string gzip(const std::string& content) {
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY);
  std::string packed(content.size() + 1000, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

/// Opens the data set `name`; configuration problems become a ConfigError.
inline std::unique_ptr<train::Dataset> open(const std::string& name, const base::Tree& arguments) {
  for (const train::DatasetType* type : data::dataset_types()) {
    if (type->name != name) continue;
    base::Problems problems;
    auto set = type->open(arguments, "data.train." + name, problems);
    problems.throw_if_any();
    return set;
  }
  throw base::BugError("no data set {}", name);
}

struct Sample {
  std::vector<float> input;
  int32_t label = -1;
  std::vector<float> values;
};

inline Sample sample(const train::Dataset& set, int64_t index) {
  const train::SampleSpec& spec = set.spec();
  Sample result;
  result.input.resize(static_cast<size_t>(spec.input.elements()));
  result.values.resize(static_cast<size_t>(spec.target.elements()));
  set.read(index, std::as_writable_bytes(std::span(result.input)), std::as_writable_bytes(std::span(result.values)));
  if (spec.classes > 0) std::memcpy(&result.label, result.values.data(), sizeof result.label);
  return result;
}

/// What the error says when opening fails with an E; "" and a failed check when it does not.
template <class E>
std::string complaint(const std::string& name, const base::Tree& arguments) {
  try {
    open(name, arguments);
  } catch (const E& error) { return error.what(); } catch (const base::Error& error) {
    FAIL_CHECK("another kind of error: " << error.what());
    return "";
  }
  FAIL_CHECK("nothing was refused");
  return "";
}

inline void check_contains(const std::string& text, const std::string& part) {
  CHECK_MESSAGE(text.find(part) != std::string::npos, "wanted \"" << part << "\" in: " << text);
}

}  // namespace gpipe::test
