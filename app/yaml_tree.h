// YAML text -> base::Tree, with every place kept, and every part of YAML refused that could surprise.
//
// Plain anchors and aliases are expanded up to a limit; tags, merge keys, several documents, duplicate keys and keys that
// are not scalars are refused by name. All faults throw ConfigError with "source:line:column". Any thread.
#pragma once

#include "core/base/tree.h"

#include <cstddef>
#include <string>

namespace gpipe::app {

struct YamlLimits {
  size_t bytes = 3U << 19U;         // of the text: 1.5 MiB
  size_t scalar_bytes = 64U << 10;  // of one value
  size_t key_bytes = 256;           // of one key
  size_t depth = 64;                // lists and maps inside each other
  size_t nodes = 100'000;           // values, after aliases are expanded
  size_t keys = 1000;               // of one map: whoever looks one up may go through all
  size_t marks_in_line = 20'000;    // brackets, quotes and commas of one line, which the parser holds all at once
};

/// `source` is the name that messages use: a path, or "--set a.b". Empty text gives null.
base::Tree parse_yaml(const std::string& text, const std::string& source, const YamlLimits& limits = {});

/// Reads a regular file; never waits on a pipe or device. Throws ConfigError also when it is missing or unreadable.
base::Tree read_yaml_file(const std::string& path, const YamlLimits& limits = {});

}  // namespace gpipe::app
