#include "core/graph/definition.h"

#include "core/base/choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace gpipe::graph {
namespace {

using base::Problems;
using base::Tree;

constexpr const char* k_entry_names = "a name has letters, digits, '_' and '-', up to 100 of them";

/// A map whose keys are names for `${...}`; null is one without keys.
bool check_params(const Tree& params, const std::string& path, Problems& problems) {
  if (params.is_null()) return true;
  if (!params.is_map()) {
    problems.add(params.where(), path, fmt::format("wanted a map of names and values, found {}", params.found()));
    return false;
  }
  bool good = true;
  for (const auto& [name, value] : params.members()) {
    if (base::is_value_name(name)) continue;
    problems.add(params.key_where(name), path,
                 fmt::format("{} is no name for a value: a letter or '_', then letters, digits and '_', up to 64; not min, max",
                             base::shown(name)));
    good = false;
  }
  return good;
}

/// Names of a block's inputs or outputs, each once.
void check_names(const std::vector<std::string>& names, const Tree& block, const char* key, bool dots, const std::string& path,
                 Problems& problems) {
  std::set<std::string> seen;
  const auto& where = block.find(key) != nullptr ? block.find(key)->where() : block.where();
  for (const std::string& name : names) {
    const size_t dot = dots ? name.find('.') : std::string::npos;
    const bool good = is_entry_name(name.substr(0, dot)) && (dot == std::string::npos || is_entry_name(name.substr(dot + 1)));
    if (!good) problems.add(where, path + "." + key, fmt::format("{}: {}", base::shown(name), k_entry_names));
    if (!seen.insert(name).second) problems.add(where, path + "." + key, fmt::format("{} stands here twice", base::shown(name)));
  }
}

void read_block(const std::string& name, const Tree& tree, const base::Location& where, const std::string& path,
                const std::vector<std::string>& taken, Definition& definition, Problems& problems) {
  if (!is_entry_name(name)) problems.add(where, path, fmt::format("{}: {}", base::shown(name), k_entry_names));
  if (std::find(taken.begin(), taken.end(), name) != taken.end())
    problems.add(where, path, fmt::format("'{}' is a word of the language already: a block needs another name", name));
  if (!tree.is_map()) {
    problems.add(tree.where(), path,
                 fmt::format("wanted a map with `layers`, and perhaps `params`, `inputs`, `outputs`, found {}", tree.found()));
    return;
  }
  BlockParts parts;
  const size_t faults = problems.errors().size();
  block_fields().read(tree, path, parts, problems);
  check_params(parts.params, path + ".params", problems);
  check_names(parts.inputs, tree, "inputs", false, path, problems);
  check_names(parts.outputs, tree, "outputs", true, path, problems);
  if (parts.inputs.empty()) problems.add(tree.where(), path + ".inputs", "a block has at least one input");
  if (problems.errors().size() != faults) return;
  definition.blocks[name] = {name, path, parts.params, parts.layers, parts.inputs, parts.outputs, where};
}

}  // namespace

base::FieldSet<DefinitionParts> definition_fields() {
  base::FieldSet<DefinitionParts> f{"network"};
  f.add("params", &DefinitionParts::params)
      .help("names and default values for ${...}; one without a value must be given")
      .raw_schema(R"({"type": ["object", "null"]})");
  f.add("input", &DefinitionParts::input)
      .help("sample that `describe` assumes: {shape: [224, 224, 3]}; training takes the data's")
      .raw_schema(R"({"type": ["object", "null"]})");
  f.add("blocks", &DefinitionParts::blocks)
      .help("lists of layers under names, used like layers")
      .raw_schema(R"({"type": ["object", "null"], "additionalProperties": {"$ref": "#/definitions/block"}})");
  f.add("layers", &DefinitionParts::layers).required().help("layers in order").raw_schema(R"({"$ref": "#/definitions/layers"})");
  return f;
}

base::FieldSet<BlockParts> block_fields() {
  base::FieldSet<BlockParts> f{"block"};
  f.add("params", &BlockParts::params)
      .help("names and default values for ${...} in its layers; one without a value must be given where it is used")
      .raw_schema(R"({"type": ["object", "null"]})");
  f.add("inputs", &BlockParts::inputs).help("names of what it takes");
  f.add("outputs", &BlockParts::outputs).help("names of entries or inputs that it gives; none: what the last entry gives");
  f.add("layers", &BlockParts::layers).required().help("layers in order").raw_schema(R"({"$ref": "#/definitions/layers"})");
  return f;
}

bool is_entry_name(const std::string& name) {
  constexpr size_t longest = 100;
  return !name.empty() && name.size() <= longest && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

Definition read_definition(const Tree& tree, const std::string& path, const std::vector<std::string>& taken, Problems& problems) {
  Definition definition;
  definition.layers = tree;
  definition.layers_path = path;
  if (!tree.is_map()) return definition;
  DefinitionParts parts;
  definition_fields().read(tree, path, parts, problems);
  definition.layers = parts.layers;
  definition.layers_path = path + ".layers";
  if (check_params(parts.params, path + ".params", problems)) definition.params = parts.params;
  if (!parts.blocks.is_null() && !parts.blocks.is_map())
    problems.add(parts.blocks.where(), path + ".blocks",
                 fmt::format("wanted a map of names and blocks, found {}", parts.blocks.found()));
  for (const auto& [name, block] : parts.blocks.members())
    read_block(name, block, parts.blocks.key_where(name), fmt::format("{}.blocks.{}", path, name), taken, definition, problems);
  return definition;
}

base::Names parameter_values(const Tree& params, const Tree& given, const base::Names* outer, const std::string& path,
                             Problems& problems) {
  std::vector<std::string> known;
  for (const auto& member : params.members()) known.push_back(member.first);
  for (const auto& member : given.members()) {
    if (params.find(member.first) != nullptr) continue;
    const std::string near = base::nearest(member.first, known);
    problems.add(given.key_where(member.first), path,
                 fmt::format("no parameter is named {}{}", base::shown(member.first),
                             near.empty() ? "" : fmt::format(", did you mean \"{}\"?", near)));
  }
  base::Names names(outer);
  for (const auto& [name, preset] : params.members()) {
    const Tree* value = given.find(name);
    if (value != nullptr && !value->is_null()) {
      names.set(name, *value);
    } else if (preset.is_null()) {
      problems.add(given.where().file ? given.where() : params.key_where(name), path,
                   fmt::format("the parameter {} has no value, and no default: give it one", base::shown(name)));
      names.set(name, Tree::scalar("0"));
    } else {
      const auto default_value = base::substitute(preset, names, base::detail::join_path(path, name), problems);
      names.set(name, default_value.value_or(Tree::scalar("0")));
    }
  }
  return names;
}

}  // namespace gpipe::graph
