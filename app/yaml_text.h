// The bytes of a YAML file before any parser sees them. Any thread.
#pragma once

#include <cstddef>
#include <string>

namespace gpipe::app {

/// The content of a regular file of at most `limit` bytes. Throws ConfigError with the reason and never blocks.
std::string read_text_file(const std::string& path, size_t limit);

/// Checks size, encoding and control characters, takes a UTF-8 mark off and makes every line end a plain newline. Throws
/// ConfigError with the place.
std::string clean_text(const std::string& text, const std::string& source, size_t limit);

/// `${a + b}` with its braces and commas as control characters (which clean text has none of), so that YAML takes it for a
/// plain word also inside {} and []; nothing else is changed, and no place moves. show_expressions turns it back.
std::string hide_expressions(std::string text);
std::string show_expressions(std::string text);

}  // namespace gpipe::app
