#include "core/base/fields.h"

#include "core/base/choice.h"
#include "core/base/scalar.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace gpipe::base {
namespace detail {
namespace {

std::string wanted_integer(const FieldInfo& info) { return info.unit.empty() ? "an integer" : "a whole number of " + info.unit; }
std::string wanted_number(const FieldInfo& info) { return info.unit.empty() ? "a number" : "a number of " + info.unit; }

void refuse(const Tree& tree, const std::string& path, const std::string& wanted, const std::string& reason, Problems& problems) {
  if (tree.is_null()) {
    problems.add(tree.where(), path, fmt::format("missing value: wanted {}", wanted));
  } else {
    const std::string found = tree.is_scalar() && !reason.empty() ? tree.text() : tree.found();
    problems.add(tree.where(), path, fmt::format("wanted {}, found {}{}", wanted, found, reason.empty() ? "" : "; " + reason));
  }
}

/// A value that a strict parser takes from an unquoted scalar; text in quotes is text, whatever it looks like.
template <class T, class Parse>
std::optional<T> read_scalar(const Tree& tree, const std::string& path, const std::string& wanted, Parse parse,
                             Problems& problems) {
  if (!tree.is_scalar()) {
    refuse(tree, path, wanted, "", problems);
    return std::nullopt;
  }
  if (tree.quoted()) {
    const bool would_do = std::holds_alternative<T>(parse(tree.text()));
    problems.add(tree.where(), path,
                 fmt::format("wanted {}, found {}{}", wanted, tree.found(), would_do ? ": leave the quotes out" : ""));
    return std::nullopt;
  }
  const auto parsed = parse(tree.text());
  if (const auto* value = std::get_if<T>(&parsed)) return *value;
  refuse(tree, path, wanted, std::get<Refusal>(parsed).reason, problems);
  return std::nullopt;
}

bool in_range(double value, const FieldInfo& info) {
  if (info.low && (info.open_low ? value <= *info.low : value < *info.low)) return false;
  return !(info.high && (info.open_high ? value >= *info.high : value > *info.high));
}

void out_of_range(const Tree& tree, const std::string& path, const FieldInfo& info, Problems& problems) {
  problems.add(tree.where(), path, fmt::format("{} is out of range: wanted {}", tree.text(), range_of(info)));
}

}  // namespace

std::optional<bool> read_bool(const Tree& tree, const std::string& path, Problems& problems) {
  return read_scalar<bool>(tree, path, "true or false", parse_boolean, problems);
}

std::optional<int64_t> read_integer(const Tree& tree, const std::string& path, const FieldInfo& info, Problems& problems) {
  const auto value = read_scalar<int64_t>(tree, path, wanted_integer(info), parse_integer, problems);
  if (!value || in_range(static_cast<double>(*value), info)) return value;
  out_of_range(tree, path, info, problems);
  return std::nullopt;
}

std::optional<double> read_number(const Tree& tree, const std::string& path, const FieldInfo& info, Problems& problems) {
  const auto value = read_scalar<double>(tree, path, wanted_number(info), parse_number, problems);
  if (!value || in_range(*value, info)) return value;
  out_of_range(tree, path, info, problems);
  return std::nullopt;
}

std::optional<std::string> read_text(const Tree& tree, const std::string& path, Problems& problems) {
  if (!tree.is_scalar()) {
    refuse(tree, path, "text", "", problems);
    return std::nullopt;
  }
  const ScalarType type = tree.quoted() ? ScalarType::text : scalar_type(tree.text());
  if (type == ScalarType::text || type == ScalarType::unclear) return tree.text();
  problems.add(tree.where(), path, fmt::format("wanted text, found {} {}: put it in quotes", tree.kind_words(), tree.text()));
  return std::nullopt;
}

std::optional<std::string> read_text(const Tree& tree, const std::string& path, const FieldInfo& info, Problems& problems) {
  if (info.words.empty()) return read_text(tree, path, problems);
  if (const auto index = read_word(tree, path, info, problems)) return info.words[*index];
  return std::nullopt;
}

std::optional<size_t> read_word(const Tree& tree, const std::string& path, const FieldInfo& info, Problems& problems) {
  const std::string wanted = fmt::format("one of {}", fmt::join(info.shown_words(), ", "));
  if (!tree.is_scalar()) {
    refuse(tree, path, wanted, "", problems);
    return std::nullopt;
  }
  const auto found = std::find(info.words.begin(), info.words.end(), tree.text());
  if (found != info.words.end()) return static_cast<size_t>(found - info.words.begin());
  const std::string near = nearest(tree.text(), info.words);
  problems.add(tree.where(), path,
               fmt::format("wanted {}, found {}{}", wanted, shown(tree.text()),
                           near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near)));
  return std::nullopt;
}

std::optional<std::vector<int64_t>> read_integers(const Tree& tree, const std::string& path, const FieldInfo& info,
                                                  Problems& problems) {
  if (info.scalar_or_list && tree.is_scalar()) {
    const auto value = read_integer(tree, path, info, problems);
    return value ? std::optional(std::vector<int64_t>{*value}) : std::nullopt;
  }
  if (!tree.is_list()) {
    refuse(tree, path, info.scalar_or_list ? "an integer or a list of integers" : "a list of integers", "", problems);
    return std::nullopt;
  }
  std::vector<int64_t> all;
  for (size_t i = 0; i < tree.items().size(); ++i) {
    if (const auto value = read_integer(tree.items()[i], join_path(path, fmt::format("{}", i)), info, problems)) {
      all.push_back(*value);
    }
  }
  return all.size() == tree.items().size() ? std::optional(all) : std::nullopt;
}

std::optional<std::vector<std::string>> read_texts(const Tree& tree, const std::string& path, Problems& problems) {
  if (!tree.is_list()) {
    refuse(tree, path, "a list of texts", "", problems);
    return std::nullopt;
  }
  std::vector<std::string> all;
  for (size_t i = 0; i < tree.items().size(); ++i) {
    if (const auto value = read_text(tree.items()[i], join_path(path, fmt::format("{}", i)), problems)) all.push_back(*value);
  }
  return all.size() == tree.items().size() ? std::optional(all) : std::nullopt;
}

Tree write_bool(bool value) { return Tree::scalar(value ? "true" : "false"); }
Tree write_integer(int64_t value) { return Tree::scalar(fmt::format("{}", value)); }
Tree write_number(double value) { return Tree::scalar(fmt::format("{}", value)); }
Tree write_text(const std::string& value) { return Tree::scalar(value, /*quoted=*/scalar_type(value) != ScalarType::text); }

void missing(const Tree& tree, const std::string& path, const FieldInfo& info, Problems& problems) {
  const Tree* empty = tree.find(info.key);
  problems.add(empty != nullptr ? empty->where() : tree.where(), path,
               fmt::format("missing value: wanted {}{}", domain_of(info), info.help.empty() ? "" : ", the " + info.help));
}

void unknown_keys(const Tree& tree, const std::string& path, const std::vector<FieldInfo>& infos,
                  const std::vector<std::string>& allowed_too, Problems& problems) {
  std::vector<std::string> known = allowed_too;
  for (const FieldInfo& info : infos) known.push_back(info.key);
  for (const auto& [key, value] : tree.members()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::string near = nearest(key, known);
    const std::string hint = !near.empty()   ? fmt::format(", did you mean \"{}\"?", near)
                             : known.empty() ? ": nothing can be set here"
                                             : fmt::format("; known: {}", fmt::join(known, ", "));
    problems.add(tree.key_where(key), path, fmt::format("unknown key {}{}", shown(key), hint));
  }
}

bool expect_map(const Tree& tree, const std::string& path, Problems& problems) {
  if (tree.is_map()) return true;
  problems.add(tree.where(), path, fmt::format("wanted a map of keys and values, found {}", tree.found()));
  return false;
}

std::string join_path(const std::string& path, const std::string& key) { return path.empty() ? key : path + "." + key; }

}  // namespace detail

void check_fields(const Tree& tree, const std::string& path, const FieldTable& table, Problems& problems) {
  using Type = FieldInfo::Type;
  if (!tree.is_null() && !detail::expect_map(tree, path, problems)) return;
  detail::unknown_keys(tree, path, table.infos, {}, problems);
  for (const FieldInfo& info : table.infos) {
    const std::string below = detail::join_path(path, info.key);
    const Tree* value = tree.find(info.key);
    if (value == nullptr || (value->is_null() && (info.nullable || info.type == Type::raw))) {
      if (info.required) detail::missing(tree, below, info, problems);
      continue;
    }
    switch (info.type) {
      case Type::boolean: detail::read_bool(*value, below, problems); break;
      case Type::integer: detail::read_integer(*value, below, info, problems); break;
      case Type::number: detail::read_number(*value, below, info, problems); break;
      case Type::text: detail::read_text(*value, below, info, problems); break;
      case Type::integer_list: detail::read_integers(*value, below, info, problems); break;
      case Type::text_list: detail::read_texts(*value, below, problems); break;
      case Type::word: detail::read_word(*value, below, info, problems); break;
      case Type::raw: break;
    }
  }
}

}  // namespace gpipe::base
