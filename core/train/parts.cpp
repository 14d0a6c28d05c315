#include "core/train/parts.h"

#include "core/base/choice.h"
#include "core/base/fields.h"
#include "core/base/scalar.h"

#include <fmt/format.h>

#include <algorithm>

namespace gpipe::train {
namespace {

const base::FieldSet<Part>& fields() {
  static const auto set = [] {
    base::FieldSet<Part> f{"parts"};
    f.add("match", &Part::match).required().help("pattern of parameter names; * stands for any letters");
    f.add("learning_rate", &Part::learning_rate).range(0, 1e6).help("times train.learning_rate");
    f.add("frozen", &Part::frozen).help("these parameters stay as they are");
    return f;
  }();
  return set;
}

/// Names of the parameters that a network trains, each once.
std::vector<std::string> parameter_names(const graph::Network& network) {
  std::vector<std::string> names;
  for (const graph::Node& node : network.nodes)
    for (const graph::ParameterSpec& parameter : node.parameters)
      if (parameter.tied_to.empty()) names.push_back(node.name + "." + parameter.name);
  return names;
}

}  // namespace

bool matches(std::string_view pattern, std::string_view name) {
  // The usual walk back to the last star: linear in practice, and no recursion.
  size_t p = 0, n = 0, star = std::string_view::npos, resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

std::vector<Part> read_parts(const base::Tree& tree, const std::string& path, base::Problems& problems) {
  std::vector<Part> parts;
  if (tree.is_null()) return parts;
  if (!tree.is_list()) {
    problems.add(tree.where(), path,
                 fmt::format("wanted a list such as [{{match: \"stem.*\", frozen: true}}], found {}", tree.kind_words()));
    return parts;
  }
  for (size_t i = 0; i < tree.items().size(); ++i) {
    Part part;
    part.where = tree.items()[i].where();
    fields().read(tree.items()[i], fmt::format("{}.{}", path, i), part, problems);
    parts.push_back(std::move(part));
  }
  return parts;
}

const Part* part_of(const std::vector<Part>& parts, const std::string& parameter) {
  const auto found = std::find_if(parts.rbegin(), parts.rend(), [&](const Part& part) { return matches(part.match, parameter); });
  return found == parts.rend() ? nullptr : &*found;
}

void freeze_parts(graph::Network& network, const std::vector<Part>& parts, base::Problems& problems) {
  const std::vector<std::string> names = parameter_names(network);
  for (const Part& part : parts) {
    if (std::any_of(names.begin(), names.end(), [&](const std::string& name) { return matches(part.match, name); })) continue;
    const std::string near = base::nearest(part.match, names);
    problems.add(part.where, "train.parts",
                 fmt::format("no parameter matches {}{}", base::shown(part.match),
                             near.empty() ? "; `gpipe-train describe` lists them" : fmt::format(", did you mean {}?", near)));
  }
  network.freeze([&](const std::string& parameter) {
    const Part* part = part_of(parts, parameter);
    return part != nullptr && part->frozen;
  });
  if (!parts.empty() && !network.values[static_cast<size_t>(network.prediction)].wants_gradient)
    problems.add(parts.front().where, "train.parts", "every parameter is frozen: there is nothing to train");
}

}  // namespace gpipe::train
