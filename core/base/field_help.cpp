// The words in which a field describes itself: for --help, the reference and messages.
#include "core/base/fields.h"
#include "core/base/scalar.h"
#include "core/base/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace gpipe::base {
namespace {

std::string range_words(const FieldInfo& info) {
  if (info.low && info.high && !info.open_low && !info.open_high) return fmt::format("{}..{}", *info.low, *info.high);
  std::string words;
  if (info.low) words = fmt::format("{} {}", info.open_low ? "above" : "at least", *info.low);
  if (info.low && info.high) words += " and ";
  if (info.high) words += fmt::format("{} {}", info.open_high ? "below" : "at most", *info.high);
  return words;
}

std::string type_words(const FieldInfo& info) {
  switch (info.type) {
    case FieldInfo::Type::boolean: return "true | false";
    case FieldInfo::Type::integer: return "integer";
    case FieldInfo::Type::number: return "number";
    case FieldInfo::Type::integer_list: return info.scalar_or_list ? "integer or list of integers" : "list of integers";
    case FieldInfo::Type::text_list: return "list of texts";
    case FieldInfo::Type::text:
    case FieldInfo::Type::word: return info.words.empty() ? "text" : fmt::format("{}", fmt::join(info.shown_words(), " | "));
    case FieldInfo::Type::raw: return "see below";
  }
  return "text";
}

std::string flow_text(const Tree& tree) {
  std::vector<std::string> parts;
  switch (tree.kind()) {
    case Tree::Kind::null: return "none";
    case Tree::Kind::scalar: return tree.text().empty() ? "\"\"" : tree.text();
    case Tree::Kind::list:
      for (const Tree& item : tree.items()) parts.push_back(flow_text(item));
      return fmt::format("[{}]", fmt::join(parts, ", "));
    case Tree::Kind::map:
      for (const auto& [key, value] : tree.members()) parts.push_back(key + ": " + flow_text(value));
      return fmt::format("{{{}}}", fmt::join(parts, ", "));
  }
  return "none";
}

}  // namespace

std::string range_of(const FieldInfo& info) {
  const std::string words = range_words(info);
  return words.empty() || info.unit.empty() ? words : words + " " + info.unit;
}

std::string domain_of(const FieldInfo& info) {
  if (info.type == FieldInfo::Type::raw) return "a value";
  std::string words = type_words(info);
  const std::string range = range_words(info);
  if (!range.empty()) words += (range.find(' ') == std::string::npos ? " " : ", ") + range;
  if (!info.unit.empty()) words += " " + info.unit;
  return words;
}

std::string default_of(const FieldTable& table, size_t index) {
  return table.infos.at(index).required ? "required" : flow_text(table.defaults.at(index));
}

std::string help_of(const FieldTable& table, const std::string& prefix) {
  if (table.infos.empty()) return prefix + "(nothing to set)\n";
  Table lines({{"key"}, {"value"}, {"default"}, {"meaning"}});
  for (size_t i = 0; i < table.infos.size(); ++i) {
    const FieldInfo& info = table.infos[i];
    lines.add_row({info.key, info.type == FieldInfo::Type::raw ? "" : domain_of(info), default_of(table, i), info.help});
  }
  return lines.text(prefix);
}

}  // namespace gpipe::base
