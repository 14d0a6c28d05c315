// Parts of a network that learn in their own way: `train.parts`, a list of patterns of parameter names with settings.
#pragma once

#include "core/base/problems.h"
#include "core/base/tree.h"
#include "core/graph/network.h"

#include <string>
#include <string_view>
#include <vector>

namespace gpipe::train {

struct Part {
  std::string match;         // of whole parameter names: "encoder.*"
  double learning_rate = 1;  // times train.learning_rate
  bool frozen = false;
  base::Location where;
};

/// Does `name` match the pattern, in which * stands for any letters, none included?
bool matches(std::string_view pattern, std::string_view name);

/// `- {match: "stem.*", learning_rate: 0.1}`, `- {match: "body.*", frozen: true}`; null means no parts.
std::vector<Part> read_parts(const base::Tree& tree, const std::string& path, base::Problems& problems);
/// The last part that matches a parameter; null where none does.
const Part* part_of(const std::vector<Part>& parts, const std::string& parameter);
/// Freezes what the parts say. A part that matches nothing is a problem, and so is a network that cannot learn any more.
void freeze_parts(graph::Network& network, const std::vector<Part>& parts, base::Problems& problems);

}  // namespace gpipe::train
