#include "app/layer_costs.h"

#include "app/yaml_text.h"
#include "core/base/error.h"
#include "core/base/scalar.h"
#include "core/train/strict_json.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <cmath>

namespace gpipe::app {
namespace {

using base::ConfigError;
using nlohmann::json;

double number_of(const json& layer, const char* key, bool needed, const std::string& where) {
  const auto found = layer.find(key);
  if (found == layer.end()) {
    if (needed) throw ConfigError("{}: \"{}\" is missing", where, key);
    return 0;
  }
  if (!found->is_number()) throw ConfigError("{}: \"{}\" is {}, wanted a number", where, key, found->type_name());
  const double value = found->get<double>();
  if (!std::isfinite(value) || value < 0 || value > 0x1p60)
    throw ConfigError("{}: \"{}\" is {}: wanted 0 or more, up to 2^60", where, key, value);
  return value;
}

/// What is wrong with a file that holds no list of layers: perhaps it holds several.
[[noreturn]] void refuse_shape(const json& found, const std::string& source) {
  std::vector<std::string> names;
  if (found.is_object())
    for (const auto& [key, value] : found.items())
      if (value.is_object() && value.contains("layers")) names.push_back(base::shown(key));
  if (!names.empty())
    throw ConfigError("{}: it holds {} tables of layers ({}): give a file with one", source, names.size(),
                      fmt::join(names, ", "));
  throw ConfigError("{}: wanted a list of layers, or an object with \"layers\", found {}", source, found.type_name());
}

}  // namespace

std::vector<LayerCost> layer_costs(const json& given, const std::string& source) {
  const json* list = &given;
  if (given.is_object() && given.contains("layers")) list = &given["layers"];
  if (!list->is_array()) refuse_shape(*list, source);
  if (list->empty()) throw ConfigError("{}: the list of layers is empty", source);
  std::vector<LayerCost> layers;
  for (const json& entry : *list) {
    const std::string where = fmt::format("{}: layer {}", source, layers.size() + 1);
    if (!entry.is_object()) throw ConfigError("{}: wanted an object, found {}", where, entry.type_name());
    LayerCost layer;
    layer.name = std::to_string(layers.size() + 1);
    if (const auto name = entry.find("name"); name != entry.end()) {
      if (!name->is_string()) throw ConfigError("{}: \"name\" is {}, wanted text", where, name->type_name());
      layer.name = base::without_controls(name->get<std::string>());
    }
    layer.forward_ms = number_of(entry, "forward_ms", true, where);
    layer.backward_ms = number_of(entry, "backward_ms", true, where);
    layer.activation_bytes = std::llround(number_of(entry, "activation_bytes", false, where));
    layer.parameter_bytes = std::llround(number_of(entry, "parameter_bytes", false, where));
    layers.push_back(std::move(layer));
  }
  return layers;
}

std::vector<LayerCost> read_layer_costs(const std::string& path) {
  const std::string text = read_text_file(path, size_t{64} << 20U);
  try {
    return layer_costs(train::parse_strict_json(text, path), path);
  } catch (const base::CheckpointError& error) { throw ConfigError("{}", error.what()); }
}

pipeline::PartitionProblem problem_of(const std::vector<LayerCost>& layers, int stages) {
  pipeline::PartitionProblem problem;
  problem.stages = stages;
  for (const LayerCost& layer : layers) {
    problem.costs.push_back(layer.forward_ms + layer.backward_ms);
    problem.cut_bytes.push_back(layer.activation_bytes);
  }
  return problem;
}

}  // namespace gpipe::app
