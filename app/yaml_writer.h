// base::Tree -> YAML text that parse_yaml reads back as the same tree. Any thread.
#pragma once

#include "core/base/tree.h"

#include <string>

namespace gpipe::app {

/// Maps in block style, short leaves on one line; texts that would read as another type, or badly, stand in quotes.
std::string write_yaml(const base::Tree& tree);

}  // namespace gpipe::app
