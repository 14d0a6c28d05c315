#include "app/network_file.h"

#include "app/yaml_tree.h"
#include "core/base/choice.h"
#include "core/base/error.h"
#include "core/base/fields.h"
#include "core/base/scalar.h"

#include <fmt/format.h>

#include <optional>

namespace gpipe::app {
namespace {

using base::Problems;
using base::Tree;

/// `$name` or `$name * N`, taken apart; nothing when the text is neither.
struct Reference {
  std::string name;
  std::optional<std::string> factor;
};

std::string without_blanks(const std::string& text) {
  const size_t start = text.find_first_not_of(' ');
  return start == std::string::npos ? "" : text.substr(start, text.find_last_not_of(' ') - start + 1);
}

std::optional<Reference> read_reference(const Tree& tree) {
  if (!tree.is_scalar() || tree.quoted() || !tree.text().starts_with('$')) return std::nullopt;
  const size_t star = tree.text().find('*');
  Reference out{without_blanks(tree.text().substr(1, star == std::string::npos ? star : star - 1)), std::nullopt};
  if (star != std::string::npos) out.factor = without_blanks(tree.text().substr(star + 1));
  return out;
}

class Substitution {
 public:
  Substitution(const Tree& parameters, Problems& problems) : parameters_(parameters), problems_(problems) {}

  Tree operator()(const Tree& tree, const std::string& path) {
    if (const auto reference = read_reference(tree)) return value_of(*reference, tree, path);
    Tree out = tree;
    for (size_t i = 0; i < out.items().size(); ++i) {
      out.items()[i] = (*this)(tree.items()[i], base::detail::join_path(path, fmt::format("{}", i)));
    }
    for (auto& [key, value] : out.members()) value = (*this)(value, base::detail::join_path(path, key));
    return out;
  }

 private:
  Tree value_of(const Reference& reference, const Tree& tree, const std::string& path) {
    const Tree* value = parameters_.find(reference.name);
    if (value == nullptr) {
      std::vector<std::string> known;
      for (const auto& member : parameters_.members()) known.push_back(member.first);
      const std::string near = base::nearest(reference.name, known);
      problems_.add(tree.where(), path,
                    fmt::format("no parameter is named {}{}; to mean the text itself, put it in quotes",
                                base::shown(reference.name), near.empty() ? "" : fmt::format(", did you mean \"{}\"?", near)));
      return {};
    }
    Tree out = *value;
    if (reference.factor) out = product(*value, *reference.factor, tree, path);
    // A fault in the value is shown where it is used, unless the user's own file has given it.
    if (!out.where().file) out.set_where(tree.where());
    return out;
  }

  Tree product(const Tree& value, const std::string& factor, const Tree& tree, const std::string& path) {
    const auto a = base::parse_integer(value.is_scalar() && !value.quoted() ? value.text() : "");
    const auto b = base::parse_integer(factor);
    int64_t result = 0;
    if (std::holds_alternative<int64_t>(a) && std::holds_alternative<int64_t>(b) &&
        !__builtin_mul_overflow(std::get<int64_t>(a), std::get<int64_t>(b), &result)) {
      return Tree::scalar(fmt::format("{}", result), false, value.where());
    }
    problems_.add(tree.where(), path,
                  fmt::format("wanted an integer times an integer, found {} * {}", value.found(), base::shown(factor)));
    return {};
  }

  const Tree& parameters_;
  Problems& problems_;
};

/// The file's parameters with the values that the configuration gives.
std::optional<Tree> merge_parameters(const Tree& network, const Tree* declared, const std::string& file, Problems& problems) {
  Tree merged = declared != nullptr && !declared->is_null() ? *declared : Tree::map();
  if (!merged.is_map()) {
    problems.add(merged.where(), "parameters", fmt::format("wanted a map of names and defaults, found {}", merged.found()));
    return std::nullopt;
  }
  std::vector<std::string> known;
  for (const auto& member : merged.members()) known.push_back(member.first);
  for (const auto& [key, value] : network.members()) {
    if (key == "file") continue;
    if (merged.find(key) != nullptr) {
      merged.set(key, value, network.key_where(key));
      continue;
    }
    const std::string near = base::nearest(key, known);
    problems.add(network.key_where(key), "network",
                 fmt::format("{} has no parameter {}{}", file, base::shown(key),
                             near.empty() ? "" : fmt::format(", did you mean \"{}\"?", near)));
  }
  return merged;
}

}  // namespace

Tree resolve_network(const Tree& network, const std::filesystem::path& folder, Problems& problems) {
  if (network.is_list()) {
    if (network.items().empty()) problems.add(network.where(), "network", "wanted at least one layer, found an empty list");
    return network;
  }
  const Tree* file = network.find("file");
  if (file == nullptr) {
    problems.add(network.where(), "network",
                 fmt::format("wanted a list of layers, or a map with `file` and parameters, found {}", network.found()));
    return {};
  }
  const auto name = base::detail::read_text(*file, "network.file", problems);
  if (!name) return {};
  const std::string path = (folder / *name).string();
  Tree content;
  try {
    content = read_yaml_file(path);
  } catch (base::Error& error) {
    error.add_context(fmt::format("{}: network.file", file->where().text()));
    throw;
  }
  const Tree* list = content.is_map() ? content.find("network") : &content;
  if (content.is_map()) {
    for (const auto& [key, value] : content.members()) {
      if (key == "network" || key == "parameters") continue;
      problems.add(content.key_where(key), "",
                   fmt::format("unknown key {}: a network file has `network` and `parameters`", base::shown(key)));
    }
  }
  if (list == nullptr || !list->is_list() || list->items().empty()) {
    problems.add(list != nullptr ? list->where() : content.where(), "",
                 fmt::format("wanted a list of layers, or a map with `network`, found {}",
                             list != nullptr && list->is_list() ? "an empty list" : content.found()));
    return {};
  }
  const auto parameters = merge_parameters(network, content.find("parameters"), path, problems);
  return parameters ? Substitution(*parameters, problems)(*list, "network") : Tree();
}

}  // namespace gpipe::app
