#include "app/config_schema.h"

#include "app/config_fields.h"
#include "app/network_file.h"
#include "core/base/schema.h"
#include "core/graph/definition.h"

#include <fmt/format.h>

#include <algorithm>

namespace gpipe::app {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

bool has_required(const CatalogEntry& entry) {
  return std::any_of(entry.fields.infos.begin(), entry.fields.infos.end(), [](const auto& info) { return info.required; });
}

const json layers_reference = {{"$ref", "#/definitions/layers"}};

/// The same settings where `${...}` may stand for any of them.
json with_expressions(json schema) {
  for (auto& [key, property] : schema["properties"].items()) {
    json either = {{"anyOf", {property, {{"$ref", "#/definitions/expression"}}}}};
    for (const char* word : {"description", "default"}) {
      if (!property.contains(word)) continue;
      either[word] = property[word];
      either["anyOf"][0].erase(word);
    }
    property = std::move(either);
  }
  return schema;
}

/// The settings of a choice. Without required ones they may be left out, and a composite that is nothing but a body may
/// be its list.
json settings_schema(const CatalogEntry& entry, bool layers, bool composite) {
  const json settings = base::schema_of(entry.fields);
  json forms = json::array({layers ? with_expressions(settings) : settings});
  if (!has_required(entry)) forms.push_back({{"type", "null"}});
  if (composite && entry.fields.infos.size() == 1 && entry.fields.infos.front().key == "body") forms.push_back(layers_reference);
  json schema = forms.size() == 1 ? forms.front() : json{{"anyOf", forms}};
  schema["description"] = entry.summary;
  return schema;
}

/// A word that needs no settings, or one key with settings; `beside` are keys that may stand next to it.
json choice_schema(const std::vector<CatalogEntry>& entries, const json& beside, bool composites) {
  const bool layers = !beside.empty();
  json words = json::array();
  json forms = json::array();
  for (const CatalogEntry& entry : entries) {
    if (!has_required(entry)) words.push_back(entry.name);
    json properties = beside;
    properties[entry.name] = settings_schema(entry, layers, composites);
    forms.push_back({{"type", "object"},
                     {"description", entry.summary},
                     {"properties", properties},
                     {"required", {entry.name}},
                     {"additionalProperties", false}});
  }
  json all = json::array();
  if (!words.empty()) all.push_back({{"enum", words}});
  for (json& form : forms) all.push_back(std::move(form));
  return {{"oneOf", all}};
}

json layer_schema(const Catalog& catalog) {
  const json text = {{"type", "string"}};
  const json beside = {
      {"name", {{"type", "string"}, {"description", "name of the entry, unique in its list"}}},
      {"inputs",
       {{"anyOf", {text, {{"type", "array"}, {"items", text}}}},
        {"description", "names of earlier entries; `input` is the list's own"}}},
      {"tied",
       {{"type", "object"},
        {"additionalProperties", text},
        {"description", "parameters that are those of earlier layers, by their whole names: {weight: embedding_1.weight}"}}},
      {"cost",
       {{"type", "number"},
        {"exclusiveMinimum", 0},
        {"description", "of the entry, in any unit, for the partition; on all entries of the network's own list, or none"}}}};
  json schema = choice_schema(catalog.layers, beside, false);
  const json composites = choice_schema(catalog.composites, beside, true);
  for (const json& form : composites["oneOf"]) schema["oneOf"].push_back(form);
  // Any other word is a block of the definition, or a parameter that holds a word.
  json types = json::array();
  for (const auto* list : {&catalog.layers, &catalog.composites, &catalog.losses})
    for (const CatalogEntry& entry : *list) types.push_back(entry.name);
  schema["oneOf"].push_back({{"type", "string"}, {"not", {{"enum", types}}}, {"description", "a block without settings"}});
  json block = {{"type", "object"},     {"description", "a block with its parameters"},
                {"properties", beside}, {"additionalProperties", {{"type", {"object", "null"}}}},
                {"minProperties", 1},   {"not", {{"anyOf", json::array()}}}};
  for (const json& type : types) block["not"]["anyOf"].push_back({{"required", {type}}});
  schema["oneOf"].push_back(block);
  return schema;
}

/// A definition in place, or from a file.
json network_schema() {
  json own = base::schema_of(graph::definition_fields().table());
  const json files = base::schema_of(network_file_fields().table())["properties"];
  own["properties"]["include"] = files["include"];
  json from_file = {{"type", "object"}, {"required", {"file"}}, {"additionalProperties", false}};
  from_file["properties"] = {
      {"file", files["file"]}, {"params", own["properties"]["params"]}, {"input", own["properties"]["input"]}};
  return {{"description", "layers in order, a definition with params and blocks, or a file that has one"},
          {"anyOf", {layers_reference, own, from_file}}};
}

/// Puts the schema of a choice in the place of a raw field, and keeps what the field says of itself.
void set_choice(json& section, const char* key, const std::vector<CatalogEntry>& entries) {
  json& field = section["properties"][key];
  json schema = choice_schema(entries, json::object(), false);
  if (field.contains("description")) schema["description"] = field["description"];
  schema["oneOf"].push_back({{"type", "null"}});
  field = std::move(schema);
}

void add_entries(std::string& out, const std::string& title, const std::string& usage, const std::vector<CatalogEntry>& entries) {
  if (entries.empty()) return;
  out += fmt::format("\n{} ({})\n", title, usage);
  for (const CatalogEntry& entry : entries) {
    out += fmt::format("\n  {}: {}\n", entry.name, entry.summary);
    if (!entry.fields.infos.empty()) out += base::help_of(entry.fields, "    ");
  }
}

}  // namespace

ordered_json config_schema(const Catalog& catalog) {
  ordered_json schema;
  schema["$schema"] = "http://json-schema.org/draft-07/schema#";
  schema["title"] = "gpipe-train configuration";
  schema["type"] = "object";
  schema["required"] = json::array();
  const auto parts = part_fields();
  for (const auto& info : parts.infos()) {
    if (info.required) schema["required"].push_back(info.key);
  }
  schema["additionalProperties"] = false;
  schema["properties"]["network"] = network_schema();
  for (const Section& section : config_sections(catalog)) {
    json part = base::schema_of(section.table);
    part["description"] = section.summary;
    if (section.name == "data") {
      set_choice(part, "train", catalog.datasets);
      set_choice(part, "validation", catalog.datasets);
    } else if (section.name == "train") {
      set_choice(part, "loss", catalog.losses);
      set_choice(part, "optimizer", catalog.optimizers);
      set_choice(part, "schedule", catalog.rates);
    }
    schema["properties"][section.name] = std::move(part);
  }
  schema["definitions"]["layers"] = {{"type", "array"}, {"items", {{"$ref", "#/definitions/layer"}}}};
  schema["definitions"]["layer"] = layer_schema(catalog);
  schema["definitions"]["block"] = base::schema_of(graph::block_fields().table());
  schema["definitions"]["expression"] = {{"type", "string"}, {"pattern", "\\$\\{"}};
  return schema;
}

std::string config_reference(const Catalog& catalog) {
  std::string out = "Settings of a configuration\n\nnetwork: layers in order, or a map\n" +
                    base::help_of(graph::definition_fields().table(), "  ") + base::help_of(network_file_fields().table(), "  ") +
                    "\nnetwork.blocks.NAME: layers used like one layer\n" + base::help_of(graph::block_fields().table(), "  ");
  for (const Section& section : config_sections(catalog)) {
    out += fmt::format("\n{}: {}\n", section.name, section.summary) + base::help_of(section.table, "  ");
  }
  add_entries(out, "Layers", "entries of network: a word, or a key with settings; `name`, `inputs`, `tied` and `cost` beside it",
              catalog.layers);
  add_entries(out, "Composites", "entries of network that hold layers", catalog.composites);
  add_entries(out, "Losses", "train.loss", catalog.losses);
  add_entries(out, "Data sets", "data.train, data.validation", catalog.datasets);
  add_entries(out, "Optimizers", "train.optimizer", catalog.optimizers);
  add_entries(out, "Learning-rate schedules", "train.schedule", catalog.rates);
  add_entries(out, "Pipeline schedules", "pipeline.schedule", catalog.schedules);
  return out;
}

}  // namespace gpipe::app
