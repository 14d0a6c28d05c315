// Lines of a text file, and the fields of a line, without holding the file: what the CSV reader stands on.
#pragma once

#include "data/source.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gpipe::data {

class LineReader {
 public:
  explicit LineReader(const std::string& path) : source_(path), chunk_(size_t{1} << 16) {}

  /// The next line without its end ("\n" or "\r\n"); false at the end. A byte-order mark is left out. DataError for a line
  /// of more than 16 MiB. `line` is valid until the next call.
  bool next(std::string_view& line);
  int64_t number() const { return number_; }  // of the last line, from 1
  const Source& source() const { return source_; }

 private:
  bool fill();

  Source source_;
  std::vector<char> chunk_;
  size_t at_ = 0, end_ = 0;
  std::string line_;
  int64_t number_ = 0;
};

/// Splits at `delimiter`; a field in double quotes may hold it, and "" there is one quote. Spaces around a field go.
/// False when a quote is not closed.
bool split_fields(std::string_view line, char delimiter, std::vector<std::string>& fields);

/// A field as a message may show it: at most 40 bytes, control characters as \xNN.
std::string shown(std::string_view field);

}  // namespace gpipe::data
