// Parameters that are another node's: `tied: {weight: embedding_1.weight}`.
#include "core/graph/builder.h"

#include <fmt/format.h>

#include <algorithm>

namespace gpipe::graph {

void NetworkBuilder::tie(const base::Tree& tied, const std::string& path, int user) {
  if (!tied.is_map() || user < 0) {
    problems_.add(tied.where(), path,
                  fmt::format("parameters of one layer are tied, as in `tied: {{weight: embedding_1.weight}}`, found {}",
                              user < 0 ? std::string("several layers") : tied.kind_words()));
    return;
  }
  Node& node = network_.nodes[static_cast<size_t>(user)];
  for (const auto& [key, owner] : tied.members()) {
    const auto parameter = std::find_if(node.parameters.begin(), node.parameters.end(),
                                        [&, name = std::string(key)](const ParameterSpec& spec) { return spec.name == name; });
    if (parameter == node.parameters.end()) {
      problems_.add(tied.key_where(key), path, fmt::format("{} has no parameter '{}'", node.type, key));
      continue;
    }
    std::vector<std::string> known;
    std::optional<Tie> found;
    for (int other = 0; other < user; ++other) {
      const std::vector<ParameterSpec>& theirs = network_.nodes[static_cast<size_t>(other)].parameters;
      for (size_t i = 0; i < theirs.size(); ++i) {
        if (!theirs[i].tied_to.empty()) continue;
        known.push_back(network_.nodes[static_cast<size_t>(other)].name + "." + theirs[i].name);
        if (owner.is_scalar() && known.back() == owner.text())
          found = Tie{other, static_cast<int>(i), user, static_cast<int>(parameter - node.parameters.begin())};
      }
    }
    if (!found) {
      const std::string near = base::nearest(owner.text(), known);
      problems_.add(owner.where(), path + "." + key,
                    fmt::format("no earlier parameter is named '{}'{}", owner.text(),
                                near.empty() ? "; wanted a whole name such as embedding_1.weight"
                                             : fmt::format("; did you mean '{}'?", near)));
      continue;
    }
    const ParameterSpec& theirs =
        network_.nodes[static_cast<size_t>(found->owner_node)].parameters[static_cast<size_t>(found->owner_parameter)];
    if (theirs.shape != parameter->shape) {
      problems_.add(owner.where(), path + "." + key,
                    fmt::format("{} is {}, this {} is {}: only parameters of one shape can be tied", owner.text(), theirs.shape,
                                key, parameter->shape));
      continue;
    }
    parameter->tied_to = owner.text();
    network_.ties.push_back(*found);
  }
  std::sort(network_.ties.begin(), network_.ties.end(), [](const Tie& a, const Tie& b) {
    return std::pair(a.user_node, a.user_parameter) < std::pair(b.user_node, b.user_parameter);
  });
}

}  // namespace gpipe::graph
