#include "app/yaml_writer.h"

#include "core/base/scalar.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace gpipe::app {
namespace {

using base::ScalarType;
using base::Tree;

constexpr size_t line_limit = 100;
constexpr size_t indent_step = 2;

bool is_alnum(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

/// May the text stand without quotes anywhere, also inside brackets? Narrower than YAML allows: quotes never hurt.
bool plain_is_safe(std::string_view text) {
  if (text.empty() || text.size() > 200 || text.starts_with("...") || text.starts_with("---")) return false;
  const bool sign_first = text.size() > 1 && (text[0] == '-' || text[0] == '+') && (is_alnum(text[1]) || text[1] == '.');
  if (!is_alnum(text[0]) && std::string_view("_./$").find(text[0]) == std::string_view::npos && !sign_first) return false;
  if (text.back() == ' ' || text.find("  ") != std::string_view::npos) return false;
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return is_alnum(c) || std::string_view("_./+-$*=()^@% ").find(c) != std::string_view::npos; });
}

/// Characters above ASCII that YAML takes for line breaks or drops.
bool starts_special(std::string_view rest, std::string& escape) {
  if (rest.starts_with("\xC2\x85")) escape = "\\u0085";
  if (rest.starts_with("\xE2\x80\xA8")) escape = "\\u2028";
  if (rest.starts_with("\xE2\x80\xA9")) escape = "\\u2029";
  if (rest.starts_with("\xEF\xBB\xBF")) escape = "\\ufeff";
  return !escape.empty();
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    std::string escape;
    if (text[i] == '"' || text[i] == '\\') {
      out += '\\';
      out += text[i];
    } else if (text[i] == '\n') {
      out += "\\n";
    } else if (text[i] == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\x{:02x}", byte);
    } else if (starts_special(std::string_view(text).substr(i), escape)) {
      out += escape;
      i += text[i] == '\xC2' ? 1 : 2;
    } else {
      out += text[i];
    }
  }
  return out + '"';
}

std::string key_text(const std::string& key) {
  return plain_is_safe(key) && base::scalar_type(key) == ScalarType::text ? key : quoted(key);
}

std::string scalar_text(const Tree& scalar) {
  const ScalarType type = base::scalar_type(scalar.text());
  const bool as_plain = plain_is_safe(scalar.text()) && (!scalar.quoted() || type == ScalarType::text);
  return as_plain ? scalar.text() : quoted(scalar.text());
}

std::string flow(const Tree& tree) {
  std::string out;
  switch (tree.kind()) {
    case Tree::Kind::null: return "null";
    case Tree::Kind::scalar: return scalar_text(tree);
    case Tree::Kind::list:
      for (const Tree& item : tree.items()) out += (out.empty() ? "" : ", ") + flow(item);
      return fmt::format("[{}]", out);
    case Tree::Kind::map:
      for (const auto& [key, value] : tree.members()) {
        out += fmt::format("{}{}: {}", out.empty() ? "" : ", ", key_text(key), flow(value));
      }
      return fmt::format("{{{}}}", out);
  }
  return out;
}

bool is_leaf(const Tree& tree) { return (!tree.is_list() || tree.items().empty()) && (!tree.is_map() || tree.members().empty()); }

/// Leaves, or lists of leaves.
bool holds_little(const Tree& tree) {
  const auto little = [](const auto& member) {
    const Tree& value = member.second;
    return is_leaf(value) || (value.is_list() && std::all_of(value.items().begin(), value.items().end(), is_leaf));
  };
  return std::all_of(tree.items().begin(), tree.items().end(), is_leaf) &&
         std::all_of(tree.members().begin(), tree.members().end(), little);
}

/// One line, where that is how a person would write it: leaves, lists of leaves, and the settings of a choice.
bool on_one_line(const Tree& tree, size_t indent, size_t depth) {
  if (is_leaf(tree)) return true;
  if (!holds_little(tree) || (tree.is_map() && depth < 3)) return false;
  return indent + flow(tree).size() <= line_limit;
}

void write_block(std::string& out, const Tree& tree, size_t indent, size_t depth);

/// What stands behind "key:" or "-".
void write_below(std::string& out, const Tree& value, size_t indent, size_t depth) {
  if (on_one_line(value, indent, depth)) {
    out += ' ' + flow(value) + '\n';
  } else {
    out += '\n';
    write_block(out, value, indent, depth);
  }
}

void write_block(std::string& out, const Tree& tree, size_t indent, size_t depth) {
  const std::string margin(indent, ' ');
  for (const auto& [key, value] : tree.members()) {
    out += margin + key_text(key) + ':';
    write_below(out, value, indent + indent_step, depth + 1);
  }
  for (const Tree& item : tree.items()) {
    out += margin + '-';
    if (!item.is_map() || is_leaf(item)) {
      write_below(out, item, indent + indent_step, depth + 1);
      continue;
    }
    // "- key: value": the first key stands on the line of the dash, the others below it.
    std::string below;
    write_block(below, item, indent + indent_step, depth + 1);
    out += ' ' + below.substr(indent + indent_step);
  }
}

}  // namespace

std::string write_yaml(const Tree& tree) {
  if (is_leaf(tree)) return flow(tree) + '\n';
  std::string out;
  write_block(out, tree, 0, 0);
  return out;
}

}  // namespace gpipe::app
