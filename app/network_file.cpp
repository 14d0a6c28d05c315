#include "app/network_file.h"

#include "app/yaml_tree.h"
#include "core/base/choice.h"
#include "core/base/error.h"
#include "core/base/scalar.h"
#include "core/graph/definition.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>

namespace gpipe::app {
namespace {

using base::Location;
using base::Problems;
using base::Tree;
using std::filesystem::path;

constexpr size_t k_most_files = 100;

std::vector<std::string> keys_of(const Tree& map) {
  std::vector<std::string> keys;
  for (const auto& member : map.members()) keys.push_back(member.first);
  return keys;
}

bool same_place(const Location& a, const Location& b) {
  return a.file && b.file && *a.file == *b.file && a.line == b.line && a.column == b.column;
}

/// Was the key added by the command line? Then it gives a value to a parameter, and declares none.
bool from_command_line(const Location& key) { return key.file && key.line == 0; }

class Resolver {
 public:
  explicit Resolver(Problems& problems) : problems_(problems) {}

  /// A definition without `file` and `include`, or nothing and faults. `whole`: it must have layers.
  std::optional<Tree> resolve(const Tree& tree, const path& folder, bool whole) {
    if (tree.is_list()) {
      if (!tree.items().empty()) return tree;
      problems_.add(tree.where(), "network", "wanted at least one layer, found an empty list");
      return std::nullopt;
    }
    if (!tree.is_map()) {
      problems_.add(tree.where(), "network",
                    fmt::format("wanted a list of layers, or a map with `layers` or `file`, found {}", tree.found()));
      return std::nullopt;
    }
    return tree.find("file") != nullptr ? from_file(tree, folder) : own(tree, folder, whole);
  }

 private:
  /// `file: F` with parameters and input beside it.
  std::optional<Tree> from_file(const Tree& tree, const path& folder) {
    bool good = true;
    for (const auto& [key, value] : tree.members()) {
      if (key == "file" || key == "params" || key == "input") continue;
      problems_.add(
          tree.key_where(key), "network",
          fmt::format("{} cannot stand beside `file`: that has the definition; `params` and `input` can", base::shown(key)));
      good = false;
    }
    const auto name = base::detail::read_text(*tree.find("file"), "network.file", problems_);
    if (!name || !good) return std::nullopt;
    const auto read = read_file(*name, folder, tree.find("file")->where(), "network.file", true);
    if (!read) return std::nullopt;
    Tree out = *read;
    const Tree* input = tree.find("input");
    if (out.is_list() && input != nullptr) out = Tree::map({{"layers", *read}}, read->where());
    if (input != nullptr) out.set("input", *input, tree.key_where("input"));
    if (const Tree* given = tree.find("params"); given != nullptr && !give(out, *given, *name)) return std::nullopt;
    return out;
  }

  /// A definition in place, with what it includes.
  std::optional<Tree> own(const Tree& tree, const path& folder, bool whole) {
    const size_t faults = problems_.errors().size();
    std::vector<std::string> known{"file", "include"};
    const auto fields = graph::definition_fields();
    for (const auto& info : fields.infos()) known.push_back(info.key);
    for (const auto& [key, value] : tree.members()) {
      if (std::find(known.begin(), known.end(), key) != known.end()) continue;
      const std::string near = base::nearest(key, known);
      problems_.add(tree.key_where(key), "network",
                    fmt::format("unknown key {}{} a network has {}", base::shown(key),
                                near.empty() ? ";" : fmt::format(", did you mean \"{}\"?", near), fmt::join(known, ", ")));
    }
    const Tree* layers = tree.find("layers");
    if (whole && layers == nullptr) problems_.add(tree.where(), "network.layers", "missing value: layers in order");
    if (layers != nullptr && (!layers->is_list() || layers->items().empty()))
      problems_.add(layers->where(), "network.layers",
                    fmt::format("wanted at least one layer, found {}", layers->is_list() ? "an empty list" : layers->found()));
    Tree params = Tree::map(), blocks = Tree::map();
    if (const Tree* include = tree.find("include")) add_includes(*include, folder, params, blocks);
    Tree given = Tree::map();
    if (const Tree* mine = tree.find("params")) add_params(*mine, params, given);
    if (const Tree* mine = tree.find("blocks")) add_all(*mine, blocks, "blocks", "block");
    if (problems_.errors().size() != faults) return std::nullopt;
    Tree out = Tree::map({}, tree.where());
    for (const char* key : {"params", "input", "blocks", "layers"}) {
      const bool merged = std::string_view(key) == "params" || std::string_view(key) == "blocks";
      const Tree& merge = std::string_view(key) == "params" ? params : blocks;
      const Tree* value = merged ? &merge : tree.find(key);
      if (value == nullptr || (merged && merge.members().empty())) continue;
      out.set(key, *value, tree.key_where(key));
    }
    return give(out, given, "the network") ? std::optional(out) : std::nullopt;
  }

  void add_includes(const Tree& include, const path& folder, Tree& params, Tree& blocks) {
    const auto names = include.is_scalar() ? std::optional(std::vector<std::string>{include.text()})
                                           : base::detail::read_texts(include, "network.include", problems_);
    if (!names) return;
    for (size_t i = 0; i < names->size(); ++i) {
      const Location& where = include.is_scalar() ? include.where() : include.items()[i].where();
      const auto read = read_file((*names)[i], folder, where, "network.include", false);
      if (!read) continue;
      if (read->is_list()) {
        problems_.add(where, "network.include", fmt::format("{} is a plain list: it has no blocks", (*names)[i]));
        continue;
      }
      if (const Tree* theirs = read->find("params")) add_all(*theirs, params, "params", "parameter");
      if (const Tree* theirs = read->find("blocks")) add_all(*theirs, blocks, "blocks", "block");
    }
  }

  /// Adds what is new; the same definition by two ways is no fault, two of one name are.
  void add_all(const Tree& more, Tree& to, const char* key, const char* noun) {
    if (!more.is_map()) {
      if (!more.is_null())
        problems_.add(more.where(), fmt::format("network.{}", key), fmt::format("wanted a map of names, found {}", more.found()));
      return;
    }
    for (const auto& [name, value] : more.members()) {
      const Location& where = more.key_where(name);
      if (to.find(name) == nullptr) {
        to.append(name, value, where);
      } else if (!same_place(where, to.key_where(name))) {
        problems_.add(where, fmt::format("network.{}", key),
                      fmt::format("the {} {} is defined already at {}", noun, base::shown(name), to.key_where(name).text()));
      }
    }
  }

  /// Own parameters; those that only the command line has are values for included ones.
  void add_params(const Tree& mine, Tree& params, Tree& given) {
    if (!mine.is_map()) {
      add_all(mine, params, "params", "parameter");
      return;
    }
    Tree declared = Tree::map();
    for (const auto& [name, value] : mine.members()) {
      Tree& to = from_command_line(mine.key_where(name)) ? given : declared;
      to.append(name, value, mine.key_where(name));
    }
    add_all(declared, params, "params", "parameter");
  }

  /// Values for parameters that the definition has.
  bool give(Tree& definition, const Tree& given, const std::string& file) {
    if (given.is_null()) return true;
    if (!given.is_map()) {
      problems_.add(given.where(), "network.params", fmt::format("wanted a map of names and values, found {}", given.found()));
      return false;
    }
    Tree* params = definition.is_map() ? definition.find("params") : nullptr;
    const std::vector<std::string> known = params != nullptr ? keys_of(*params) : std::vector<std::string>();
    bool good = true;
    for (const auto& [name, value] : given.members()) {
      if (params != nullptr && params->find(name) != nullptr) {
        params->set(name, value, params->key_where(name));
        continue;
      }
      const std::string near = base::nearest(name, known);
      problems_.add(given.key_where(name), "network.params",
                    fmt::format("{} has no parameter {}{}", file, base::shown(name),
                                !near.empty()   ? fmt::format(", did you mean \"{}\"?", near)
                                : known.empty() ? std::string("; it has none")
                                                : fmt::format("; it has {}", fmt::join(known, ", "))));
      good = false;
    }
    return good;
  }

  /// A definition from a file, each read once.
  std::optional<Tree> read_file(const std::string& name, const path& folder, const Location& where, const std::string& key,
                                bool whole) {
    const std::string file = (folder / name).lexically_normal().string();
    std::error_code ignored;
    const std::string real = std::filesystem::weakly_canonical(file, ignored).string();
    if (const auto open = std::find(open_.begin(), open_.end(), real); open != open_.end()) {
      problems_.add(
          where, key,
          fmt::format("the files take each other in, in a circle: {} -> {}", fmt::join(open, open_.end(), " -> "), real));
      return std::nullopt;
    }
    const std::pair<std::string, bool> id{real, whole};
    if (const auto before = read_.find(id); before != read_.end()) return before->second;
    if (read_.size() + open_.size() >= k_most_files)
      throw base::ConfigError("{}: {}: more than {} files", where.text(), key, k_most_files);
    Tree content;
    try {
      content = read_yaml_file(file);
    } catch (base::Error& error) {
      error.add_context(fmt::format("{}: {}", where.text(), key));
      throw;
    }
    open_.push_back(real);
    auto resolved = resolve(content, path(file).parent_path(), whole);
    open_.pop_back();
    read_[id] = resolved;
    return resolved;
  }

  Problems& problems_;
  std::vector<std::string> open_;  // files that are being read, outermost first
  std::map<std::pair<std::string, bool>, std::optional<Tree>> read_;
};

}  // namespace

base::FieldSet<NetworkFiles> network_file_fields() {
  base::FieldSet<NetworkFiles> f{"network"};
  f.add("file", &NetworkFiles::file).required().help("the file that has the definition, from this one's folder");
  f.add("include", &NetworkFiles::include)
      .help("files whose blocks and params are taken over, from this one's folder")
      .raw_schema(R"({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]})");
  return f;
}

Tree resolve_network(const Tree& network, const path& folder, Problems& problems) {
  return Resolver(problems).resolve(network, folder, true).value_or(Tree());
}

}  // namespace gpipe::app
