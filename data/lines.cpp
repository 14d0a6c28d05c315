#include "data/lines.h"

#include <algorithm>
#include <cstring>

namespace gpipe::data {

namespace {
constexpr size_t longest_line = size_t{16} << 20;
}

bool LineReader::fill() {
  at_ = 0;
  end_ = source_.read(std::as_writable_bytes(std::span(chunk_)));
  return end_ > 0;
}

bool LineReader::next(std::string_view& line) {
  line_.clear();
  bool any = false;
  while (at_ < end_ || fill()) {
    any = true;
    const char* from = chunk_.data() + at_;
    const auto* stop = static_cast<const char*>(std::memchr(from, '\n', end_ - at_));
    const size_t length = stop != nullptr ? static_cast<size_t>(stop - from) : end_ - at_;
    if (line_.size() + length > longest_line) {
      throw base::DataError("{}:{}: the line is longer than {} bytes; is this a text file?", source_.path(), number_ + 1,
                            longest_line);
    }
    line_.append(from, length);
    at_ += length + (stop != nullptr ? 1 : 0);
    if (stop != nullptr) break;
  }
  if (!any) return false;
  ++number_;
  line = line_;
  if (line.ends_with('\r')) line.remove_suffix(1);
  if (number_ == 1 && line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
  return true;
}

bool split_fields(std::string_view line, char delimiter, std::vector<std::string>& fields) {
  const auto is_space = [delimiter](char c) { return (c == ' ' || c == '\t') && c != delimiter; };
  size_t count = 0;
  const auto next_field = [&]() -> std::string& {
    if (count == fields.size()) fields.emplace_back();
    fields[count].clear();
    return fields[count++];
  };
  size_t at = 0;
  while (true) {
    std::string& field = next_field();
    while (at < line.size() && is_space(line[at])) ++at;
    if (at < line.size() && line[at] == '"') {
      for (++at;; ++at) {
        if (at >= line.size()) return false;
        if (line[at] != '"') {
          field.push_back(line[at]);
        } else if (at + 1 < line.size() && line[at + 1] == '"') {
          field.push_back(line[at++]);
        } else {
          break;
        }
      }
      const size_t stop = std::min(line.find(delimiter, ++at), line.size());
      while (at < stop && is_space(line[at])) ++at;
      if (at != stop) return false;
    } else {
      const size_t stop = std::min(line.find(delimiter, at), line.size());
      size_t end = stop;
      while (end > at && is_space(line[end - 1])) --end;
      field.assign(line.substr(at, end - at));
      at = stop;
    }
    if (at >= line.size()) break;
    ++at;  // the delimiter
  }
  fields.resize(count);
  return true;
}

std::string shown(std::string_view field) {
  constexpr size_t longest = 40;
  std::string text;
  for (const char c : field.substr(0, longest)) {
    const auto byte = static_cast<unsigned char>(c);
    text += byte < 0x20 || byte == 0x7F ? fmt::format("\\x{:02x}", byte) : std::string(1, c);
  }
  return field.size() > longest ? text + "..." : text;
}

}  // namespace gpipe::data
