#include "app/yaml_text.h"

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/text.h"
#include "core/base/utf8.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <string_view>

namespace gpipe::app {
namespace {

constexpr char k_open = '\x01', k_close = '\x02', k_comma = '\x03';  // stand for { } , in a hidden expression

using base::ConfigError;

std::string place(const std::string& source, std::string_view before) {
  size_t line = 1, start = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    if (before[i] == '\n' || (before[i] == '\r' && !(i + 1 < before.size() && before[i + 1] == '\n'))) {
      ++line;
      start = i + 1;
    }
  }
  return fmt::format("{}:{}:{}", source, line, before.size() - start + 1);
}

void refuse_other_encodings(std::string_view text, const std::string& source) {
  using namespace std::string_view_literals;
  if (text.starts_with("\0\0\xFE\xFF"sv) || text.starts_with("\xFF\xFE\0\0"sv)) {
    throw ConfigError("{}:1:1: the text is UTF-32: save it as UTF-8", source);
  }
  if (text.starts_with("\xFE\xFF"sv) || text.starts_with("\xFF\xFE"sv)) {
    throw ConfigError("{}:1:1: the text is UTF-16: save it as UTF-8", source);
  }
}

}  // namespace

std::string read_text_file(const std::string& path, size_t limit) {
  std::string reason;
  const auto file = base::InputFile::open(path, reason);
  if (!file) throw ConfigError("{} {}: wanted a readable file", path, reason);
  if (file->size() > limit) {
    throw ConfigError("{}: the file has {}; at most {} are read", path, base::format_bytes(static_cast<int64_t>(file->size())),
                      base::format_bytes(static_cast<int64_t>(limit)));
  }
  std::string text(file->size(), '\0');
  text.resize(file->read_at(0, std::as_writable_bytes(std::span(text))));
  return text;
}

std::string clean_text(const std::string& text, const std::string& source, size_t limit) {
  if (text.size() > limit) {
    throw ConfigError("{}: the text has {}; a configuration has at most {}", source,
                      base::format_bytes(static_cast<int64_t>(text.size())), base::format_bytes(static_cast<int64_t>(limit)));
  }
  refuse_other_encodings(text, source);
  std::string_view rest(text);
  if (rest.starts_with("\xEF\xBB\xBF")) rest.remove_prefix(3);
  std::string clean;
  clean.reserve(rest.size());
  for (size_t i = 0; i < rest.size();) {
    const auto byte = static_cast<unsigned char>(rest[i]);
    if (byte == '\r') {
      clean += '\n';
      i += i + 1 < rest.size() && rest[i + 1] == '\n' ? 2 : 1;
      continue;
    }
    if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F) {
      throw ConfigError("{}: a {} is not allowed in a configuration", place(source, rest.substr(0, i)),
                        byte == 0 ? "NUL byte" : fmt::format("control character 0x{:02x}", byte));
    }
    size_t next = i;
    char32_t code_point = 0;
    if (!base::next_code_point(rest, next, code_point)) {
      throw ConfigError("{}: byte 0x{:02x} is not valid UTF-8: save the text as UTF-8", place(source, rest.substr(0, i)), byte);
    }
    clean.append(rest.substr(i, next - i));
    i = next;
  }
  return clean;
}

std::string hide_expressions(std::string text) {
  constexpr std::string_view allowed = " +-*/%(),_";
  for (size_t at = text.find("${"); at != std::string::npos; at = text.find("${", at + 1)) {
    const auto belongs = [&](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || allowed.find(c) != allowed.npos;
    };
    const auto end = std::find_if_not(text.begin() + static_cast<std::ptrdiff_t>(at) + 2, text.end(), belongs);
    if (end == text.end() || *end != '}') continue;
    text[at + 1] = k_open;
    std::replace(text.begin() + static_cast<std::ptrdiff_t>(at), end, ',', k_comma);
    *end = k_close;
  }
  return text;
}

std::string show_expressions(std::string text) {
  for (size_t at = text.find({'$', k_open}); at != std::string::npos; at = text.find({'$', k_open}, at + 1)) {
    const size_t end = std::min(text.find(k_close, at), text.size() - 1);
    text[at + 1] = '{';
    for (size_t i = at; i <= end; ++i) text[i] = text[i] == k_comma ? ',' : text[i] == k_close ? '}' : text[i];
  }
  return text;
}

}  // namespace gpipe::app
