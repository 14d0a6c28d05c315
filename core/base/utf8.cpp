#include "core/base/utf8.h"

#include <fmt/format.h>

#include <cstdint>

namespace gpipe::base {

bool next_code_point(std::string_view text, size_t& at, char32_t& code_point) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (at >= text.size()) return false;
  const unsigned char lead = byte(at);
  if (lead < 0x80) {
    code_point = lead;
    ++at;
    return true;
  }
  const size_t more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
  if (lead < 0xC2 || lead > 0xF4 || text.size() - at <= more) return false;
  char32_t value = lead & (0x3Fu >> more);
  for (size_t i = 1; i <= more; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return false;
    value = value << 6 | (byte(at + i) & 0x3Fu);
  }
  constexpr char32_t smallest[] = {0, 0x80, 0x800, 0x10000};
  if (value < smallest[more] || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) return false;
  code_point = value;
  at += more + 1;
  return true;
}

void append_utf8(std::string& text, char32_t c) {
  const auto put = [&](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6);
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

size_t valid_utf8(std::string_view text) {
  size_t at = 0;
  char32_t ignored = 0;
  while (next_code_point(text, at, ignored)) {}
  return at;
}

std::string code_point_name(char32_t code_point) {
  std::string name = fmt::format("U+{:04X}", static_cast<uint32_t>(code_point));
  if (code_point <= 0x20 || (code_point >= 0x7F && code_point <= 0xA0)) return name;
  name += " (";
  append_utf8(name, code_point);
  return name + ")";
}

}  // namespace gpipe::base
