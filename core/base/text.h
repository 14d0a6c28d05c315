// Numbers and tables as a reader wants them. Pure functions and one value class; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gpipe::base {

std::string format_bytes(int64_t bytes);        // "512 B", "1.5 MiB"
std::string format_count(int64_t count);        // "1,234,567"
std::string format_count_short(int64_t count);  // "1.2 M"; below 10,000 in full
std::string format_duration(double seconds);    // "0.85 ms", "12.3 s", "3 min 05 s", "1 h 02 min", "2 d 03 h"

/// Words in lines of at most `width` characters, the second and later ones indented; a longer word stands alone.
std::string wrap(const std::string& text, size_t width, size_t indent = 0);

/// Columns padded to their widest cell, two spaces apart, with a rule below the titles.
class Table {
 public:
  enum class Align { left, right };
  struct Column {
    std::string title;
    Align align = Align::left;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  void add_row(std::vector<std::string> cells);  // missing cells stay empty
  void add_rule();                               // a line of dashes, as above a row of sums
  std::string text(const std::string& indent = "") const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;  // an empty row is a rule
};

}  // namespace gpipe::base
