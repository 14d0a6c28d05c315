#include "app/overrides.h"

#include "app/yaml_text.h"
#include "app/yaml_tree.h"
#include "core/base/choice.h"
#include "core/base/error.h"
#include "core/base/fields.h"
#include "core/base/scalar.h"

namespace gpipe::app {
namespace {

using base::ConfigError;
using base::Location;
using base::Tree;

Location named(const std::string& source) { return {std::make_shared<const std::string>(source), 0, 0}; }

/// A part of the command line has no lines and columns.
void place_all(Tree& tree, const Location& where) {
  tree.set_where(where);
  for (Tree& item : tree.items()) place_all(item, where);
  std::vector<Tree::Member> members = std::move(tree.members());
  tree.members().clear();
  for (auto& [key, value] : members) {
    place_all(value, where);
    tree.append(key, std::move(value), where);
  }
}

std::vector<std::string> split_path(const std::string& path, const std::string& source) {
  std::vector<std::string> keys;
  for (size_t start = 0; start <= path.size();) {
    const size_t end = std::min(path.find('.', start), path.size());
    keys.push_back(path.substr(start, end - start));
    if (keys.back().empty()) throw ConfigError("{}: wanted keys with single dots between them, as in train.seed", source);
    start = end + 1;
  }
  return keys;
}

std::string trimmed(const std::string& text) {
  const size_t start = text.find_first_not_of(" \t\n");
  return start == std::string::npos ? "" : text.substr(start, text.find_last_not_of(" \t\n") - start + 1);
}

Tree parse_value(const std::string& text, const std::string& source) {
  constexpr size_t limit = 64U << 10U;
  const std::string value = trimmed(clean_text(text, source, limit));
  const bool is_yaml = !value.empty() && std::string("[{\"'").find(value.front()) != std::string::npos;
  Tree tree = is_yaml ? parse_yaml(value, source) : Tree::scalar(value);
  if (!is_yaml && base::scalar_type(value) == base::ScalarType::null) tree = Tree();
  if (is_yaml && tree.is_map() && value.front() != '{') {
    throw ConfigError("{}: a quoted value ends before {}: put the whole value in quotes", source, base::shown(value));
  }
  place_all(tree, named(source));
  return tree;
}

Tree& item_at(Tree& list, const std::string& key, const std::string& above, const std::string& source) {
  const auto index = base::parse_integer(key);
  const auto* at = std::get_if<int64_t>(&index);
  const auto size = static_cast<int64_t>(list.items().size());
  if (at == nullptr || *at < 0 || *at >= size) {
    throw ConfigError("{}: {} is a list of {}: wanted a place in it from 0 to {}, found {}", source, above, size, size - 1,
                      base::shown(key));
  }
  return list.items()[static_cast<size_t>(*at)];
}

}  // namespace

Override parse_set(const std::string& argument) {
  const size_t equals = argument.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw ConfigError("--set {}: wanted KEY=VALUE, as in --set train.seed=3", base::shown(argument));
  }
  const std::string path = argument.substr(0, equals);
  const std::string source = "--set " + path;
  clean_text(path, "--set", 1024);
  split_path(path, source);
  return {path, parse_value(argument.substr(equals + 1), source)};
}

Override shortcut(const std::string& flag, const std::string& path, const std::string& text, bool as_text) {
  clean_text(text, flag, 64U << 10U);
  return {path, Tree::scalar(text, as_text, named(flag))};
}

void apply(Tree& root, const Override& override) {
  const Location& where = override.value.where();
  const std::string source = where.text();
  Tree* at = &root;
  std::string above;
  for (const std::string& key : split_path(override.path, source)) {
    if (at->is_list()) {
      at = &item_at(*at, key, above, source);
    } else {
      if (at->is_scalar() && !above.empty() && at->text() == key) {
        *at = Tree::map({}, at->where());
      } else if (at->is_scalar()) {
        throw ConfigError("{}: {} is {}: nothing stands below it", source, above.empty() ? "the configuration" : above,
                          at->found());
      }
      if (at->find(key) == nullptr) at->set(key, Tree(), where);
      at = at->find(key);
    }
    above = base::detail::join_path(above, key);
  }
  *at = override.value;
}

}  // namespace gpipe::app
