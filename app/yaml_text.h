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

}  // namespace gpipe::app
