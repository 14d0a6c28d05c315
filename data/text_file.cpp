#include "data/text_file.h"

#include "core/base/error.h"

#include <algorithm>
#include <string_view>
#include <vector>

namespace gpipe::data {

std::string read_text(const std::string& path, Stamped* stamp) {
  Source source(path);
  if (stamp != nullptr) *stamp = {path, source.stamp()};
  const std::vector<uint8_t> bytes = read_bytes(source, source.most_bytes());
  std::string text(bytes.begin(), bytes.end());
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
  if (text.empty()) throw base::DataError("{}: the file is empty, wanted text", path);
  return text;
}

void encode_text(const train::Tokenizer& tokenizer, const std::string& text, const std::string& path,
                 const std::function<void(std::span<const int32_t>)>& take) {
  const int32_t end = tokenizer.special().end;
  std::vector<int32_t> ids;
  if (end < 0) {
    try {
      tokenizer.encode(text, ids);
    } catch (const base::DataError& error) { throw base::DataError("{}: {}", path, error.what()); }
    take(ids);
    return;
  }
  int64_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t stop = std::min(text.find('\n', at), text.size());
    std::string_view line(text.data() + at, stop - at);
    if (line.ends_with('\r')) line.remove_suffix(1);
    ++number;
    ids.clear();
    try {
      tokenizer.encode(line, ids);
    } catch (const base::DataError& error) { throw base::DataError("{}:{}: {}", path, number, error.what()); }
    ids.push_back(end);
    take(ids);
    at = stop + 1;
  }
}

}  // namespace gpipe::data
