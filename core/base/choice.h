// A choice from a list, as a configuration writes it: a plain word (`relu`), or a one-key map (`sgd: {momentum: 0.9}`).
#pragma once

#include "core/base/problems.h"
#include "core/base/tree.h"

#include <optional>
#include <string>
#include <vector>

namespace gpipe::base {

struct Choice {
  std::string name;
  Tree arguments;  // a map, or null
  Location where;
};

/// `what` is the noun of the message ("optimizer"). An unknown name lists the known ones and the nearest.
std::optional<Choice> read_choice(const Tree& tree, const std::string& path, const std::string& what,
                                  const std::vector<std::string>& known, Problems& problems);

/// The known word nearest to `word` (edit distance up to a third of its length, at least 1), or "".
std::string nearest(const std::string& word, const std::vector<std::string>& known);

}  // namespace gpipe::base
