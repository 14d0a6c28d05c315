#include "core/base/schema.h"

#include "core/base/scalar.h"

#include <fmt/format.h>

#include <cmath>

namespace gpipe::base {
namespace {

using nlohmann::json;

json scalar_json(const Tree& tree) {
  if (tree.quoted()) return tree.text();
  switch (scalar_type(tree.text())) {
    case ScalarType::null: return nullptr;
    case ScalarType::boolean: return tree.text() == "true";
    case ScalarType::integer:
      if (const auto value = parse_integer(tree.text()); std::holds_alternative<int64_t>(value)) return std::get<int64_t>(value);
      break;
    case ScalarType::number:
      if (const auto value = parse_number(tree.text()); std::holds_alternative<double>(value)) return std::get<double>(value);
      break;
    case ScalarType::unclear:
    case ScalarType::text: break;
  }
  return tree.text();
}

/// Whole limits stand as whole numbers, as a person would write them.
json limit(double value) {
  constexpr double exact = 0x1p53;  // beyond it not every whole number is a double
  if (value < -exact || value > exact || value != std::trunc(value)) return value;
  return static_cast<int64_t>(value);
}

json ranged(const char* type, const FieldInfo& info) {
  json out = {{"type", type}};
  if (info.low) out[info.open_low ? "exclusiveMinimum" : "minimum"] = limit(*info.low);
  if (info.high) out[info.open_high ? "exclusiveMaximum" : "maximum"] = limit(*info.high);
  return out;
}

json type_json(const FieldInfo& info) {
  switch (info.type) {
    case FieldInfo::Type::boolean: return {{"type", "boolean"}};
    case FieldInfo::Type::integer: return ranged("integer", info);
    case FieldInfo::Type::number: return ranged("number", info);
    case FieldInfo::Type::text:
    case FieldInfo::Type::word: return info.words.empty() ? json{{"type", "string"}} : json{{"enum", info.words}};
    case FieldInfo::Type::integer_list: {
      json list = {{"type", "array"}, {"items", ranged("integer", info)}};
      return info.scalar_or_list ? json{{"anyOf", {ranged("integer", info), list}}} : list;
    }
    case FieldInfo::Type::text_list: return {{"type", "array"}, {"items", {{"type", "string"}}}};
    case FieldInfo::Type::raw: return info.raw_schema.empty() ? json::object() : json::parse(info.raw_schema);
  }
  return json::object();
}

json field_json(const FieldInfo& info, const Tree& default_value) {
  json out = type_json(info);
  if (info.nullable) out = {{"anyOf", {out, {{"type", "null"}}}}};
  std::string description = info.help;
  if (!info.unit.empty()) description += fmt::format("{}[{}]", description.empty() ? "" : " ", info.unit);
  if (!description.empty()) out["description"] = description;
  if (!info.required && !default_value.is_null()) out["default"] = json_of(default_value);
  return out;
}

}  // namespace

json json_of(const Tree& tree) {
  switch (tree.kind()) {
    case Tree::Kind::null: return nullptr;
    case Tree::Kind::scalar: return scalar_json(tree);
    case Tree::Kind::list: {
      json list = json::array();
      for (const Tree& item : tree.items()) list.push_back(json_of(item));
      return list;
    }
    case Tree::Kind::map: {
      json map = json::object();
      for (const auto& [key, value] : tree.members()) map[key] = json_of(value);
      return map;
    }
  }
  return nullptr;
}

json schema_of(const FieldTable& table) {
  json properties = json::object();
  json required = json::array();
  for (size_t i = 0; i < table.infos.size(); ++i) {
    properties[table.infos[i].key] = field_json(table.infos[i], table.defaults.at(i));
    if (table.infos[i].required) required.push_back(table.infos[i].key);
  }
  json out = {{"type", "object"}, {"properties", properties}, {"additionalProperties", false}};
  if (!required.empty()) out["required"] = required;
  return out;
}

}  // namespace gpipe::base
