// JSON Schema (draft-07) from a field table, for editors; see app's `schema` command.
#pragma once

#include "core/base/fields.h"

#include <nlohmann/json.hpp>

namespace gpipe::base {

/// {"type": "object", "properties": {...}, "additionalProperties": false}; ranges, words, defaults and help included.
nlohmann::json schema_of(const FieldTable& table);

/// A tree as JSON: unquoted scalars get their type, everything else is text.
nlohmann::json json_of(const Tree& tree);

}  // namespace gpipe::base
