// UTF-8 (RFC 3629): no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gpipe::base {

/// The code point that begins at byte `at` of `text`, and `at` moved behind it; false, and nothing moved, where none begins.
bool next_code_point(std::string_view text, size_t& at, char32_t& code_point);

void append_utf8(std::string& text, char32_t code_point);

/// The first byte at which no code point begins; `text.size()` when all is well.
size_t valid_utf8(std::string_view text);

/// "U+00E9 (é)"; control characters and spaces without the part in brackets.
std::string code_point_name(char32_t code_point);

}  // namespace gpipe::base
