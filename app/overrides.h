// What the command line lays over a configuration file: `--set a.b=c`, and the shortcut flags, which are the same thing.
// Any thread.
#pragma once

#include "core/base/tree.h"

#include <string>
#include <vector>

namespace gpipe::app {

/// One value for one dotted path; its place is "--set a.b" or "--threads".
struct Override {
  std::string path;
  base::Tree value;
};

/// "train.seed=3". A value that begins with [ { " or ' is YAML; any other is taken as it stands, typed like a plain
/// YAML scalar, with no special characters. Throws ConfigError.
Override parse_set(const std::string& argument);

/// A shortcut: `text` as a plain scalar, or as text whatever it looks like.
Override shortcut(const std::string& flag, const std::string& path, const std::string& text, bool as_text = false);

/// Replaces what stands at the path, making maps on the way; a number in the path is a place in a list, from 0. A plain
/// word on the way becomes a choice with settings: `sgd` and `.sgd.momentum`. Throws ConfigError.
void apply(base::Tree& root, const Override& override);

}  // namespace gpipe::app
