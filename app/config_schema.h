// What editors and users read about configurations: the JSON Schema (draft-07), and the reference of all settings. Both
// are made from the field tables. Any thread.
#pragma once

#include "app/catalog.h"

#include <nlohmann/json.hpp>

#include <string>

namespace gpipe::app {

/// `definitions/layers` is a list of layers, `definitions/layer` one entry; tables of composites refer to them.
nlohmann::ordered_json config_schema(const Catalog& catalog);

/// Every setting of every part, layer, data set, optimizer and schedule, with default, range, unit and meaning.
std::string config_reference(const Catalog& catalog);

}  // namespace gpipe::app
