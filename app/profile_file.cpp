#include "app/profile_file.h"

#include "app/yaml_text.h"
#include "core/base/choice.h"
#include "core/base/error.h"
#include "core/base/scalar.h"
#include "core/train/strict_json.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

namespace gpipe::app {
namespace {

using base::ConfigError;
using nlohmann::json;
using pipeline::NodeProfile;

constexpr const char* k_format = "gpipe-train profile 1";
constexpr const char* k_unit = "seconds and bytes for one micro-batch; pack and update: for one mini-batch";

struct TimeKey {
  const char* key;
  double NodeProfile::*member;
};
constexpr std::array<TimeKey, 5> k_times{{{"forward", &NodeProfile::forward},
                                          {"backward_input", &NodeProfile::backward_input},
                                          {"backward_weight", &NodeProfile::backward_weight},
                                          {"pack", &NodeProfile::pack},
                                          {"update", &NodeProfile::update}}};
struct BytesKey {
  const char* key;
  int64_t NodeProfile::*member;
};
constexpr std::array<BytesKey, 2> k_bytes{
    {{"kept_bytes", &NodeProfile::kept_bytes}, {"output_bytes", &NodeProfile::output_bytes}}};

/// An object whose keys are all asked for, once each.
class Reader {
 public:
  Reader(const json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) throw ConfigError("{}: wanted an object, found {}", where_, object.type_name());
  }

  const json& at(const char* key) {
    known_.emplace_back(key);
    const auto found = object_.find(key);
    if (found == object_.end()) throw ConfigError("{}: \"{}\" is missing", where_, key);
    return *found;
  }
  std::string text(const char* key) {
    const json& value = at(key);
    if (!value.is_string()) throw ConfigError("{}: \"{}\" is {}, wanted text", where_, key, value.type_name());
    return value.get<std::string>();
  }
  int64_t whole(const char* key, int64_t low) {
    const json& value = at(key);
    constexpr int64_t high = int64_t{1} << 60U;
    if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(high)) ||
        value.get<int64_t>() < low)
      throw ConfigError("{}: \"{}\" is {}, wanted a whole number, {} to 2^60", where_, key, shortened(value), low);
    return value.get<int64_t>();
  }
  double seconds(const char* key) {
    const json& value = at(key);
    if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() < 0 || value.get<double>() > 1e9)
      throw ConfigError("{}: \"{}\" is {}, wanted seconds, 0 to 1e9", where_, key, shortened(value));
    return value.get<double>();
  }
  std::vector<std::string> texts(const char* key) {
    const json& list = at(key);
    if (!list.is_array() || !std::all_of(list.begin(), list.end(), [](const json& item) { return item.is_string(); }))
      throw ConfigError("{}: \"{}\" is {}, wanted a list of texts", where_, key, shortened(list));
    return list.get<std::vector<std::string>>();
  }
  /// None where the key is missing.
  std::map<std::string, std::string> texts_by_key(const char* key) {
    known_.emplace_back(key);
    const auto found = object_.find(key);
    if (found == object_.end()) return {};
    if (!found->is_object() || !std::all_of(found->begin(), found->end(), [](const json& item) { return item.is_string(); }))
      throw ConfigError("{}: \"{}\" is {}, wanted an object of texts", where_, key, shortened(*found));
    return found->get<std::map<std::string, std::string>>();
  }
  void end() const {
    for (const auto& [key, value] : object_.items()) {
      if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
      const std::string near = base::nearest(key, known_);
      throw ConfigError("{}: unknown key {}{}", where_, base::shown(key),
                        near.empty() ? "" : fmt::format(", did you mean \"{}\"?", near));
    }
  }

 private:
  static std::string shortened(const json& value) { return value.is_number() ? value.dump() : std::string(value.type_name()); }
  const json& object_;
  std::string where_;
  std::vector<std::string> known_;
};

ProfileFile from_json(const json& given, const std::string& path) {
  Reader top(given, path);
  if (const std::string format = top.text("format"); format != k_format)
    throw ConfigError("{}: its format is {}, wanted \"{}\"", path, base::shown(format), k_format);
  ProfileFile file;
  file.device = top.text("device");
  file.library = top.text("library");
  file.program = top.text("program");
  file.date = top.text("date");
  file.threads = top.whole("threads", 1);
  file.micro_batch = top.whole("micro_batch", 1);
  top.text("unit");
  file.algorithms = top.texts_by_key("algorithms");
  const json& nodes = top.at("nodes");
  top.end();
  if (!nodes.is_array()) throw ConfigError("{}: \"nodes\" is {}, wanted a list", path, nodes.type_name());
  for (const json& entry : nodes) {
    Reader node(entry, fmt::format("{}: node {}", path, file.nodes.size() + 1));
    file.nodes.push_back({node.text("name"), node.text("type"), node.text("output"), node.texts("parameters")});
    NodeProfile& profile = file.profile.emplace_back();
    for (const auto& [key, member] : k_times) profile.*member = node.seconds(key);
    for (const auto& [key, member] : k_bytes) profile.*member = node.whole(key, 0);
    node.end();
  }
  return file;
}

/// "" where two nodes are the same.
std::string difference(const ProfiledNode& saved, const ProfiledNode& here) {
  const auto words = [](const char* what, const std::string& there, const std::string& now) {
    return fmt::format("{} is {} there and {} here", what, base::shown(there), base::shown(now));
  };
  if (saved.name != here.name) return words("its name", saved.name, here.name);
  if (saved.type != here.type) return words("its type", saved.type, here.type);
  if (saved.output != here.output) return words("its output", saved.output, here.output);
  if (saved.parameters != here.parameters)
    return fmt::format("its parameters are [{}] there and [{}] here", fmt::join(saved.parameters, ", "),
                       fmt::join(here.parameters, ", "));
  return {};
}

}  // namespace

std::vector<ProfiledNode> profiled_nodes(const graph::Network& network) {
  std::vector<ProfiledNode> nodes;
  for (const graph::Node& node : network.nodes) {
    ProfiledNode out{node.name, node.type, network.values[static_cast<size_t>(node.output)].shape.text(), {}};
    for (const graph::ParameterSpec& parameter : node.parameters)
      out.parameters.push_back(parameter.name + " " + parameter.shape.text());
    nodes.push_back(std::move(out));
  }
  return nodes;
}

json to_json(const ProfileFile& file) {
  json out{{"format", k_format},    {"device", file.device},   {"library", file.library},         {"program", file.program},
           {"date", file.date},     {"threads", file.threads}, {"micro_batch", file.micro_batch}, {"unit", k_unit},
           {"nodes", json::array()}};
  if (!file.algorithms.empty()) out["algorithms"] = file.algorithms;
  for (size_t i = 0; i < file.nodes.size(); ++i) {
    const ProfiledNode& node = file.nodes[i];
    json entry{{"name", node.name}, {"type", node.type}, {"output", node.output}, {"parameters", node.parameters}};
    for (const auto& [key, member] : k_times) entry[key] = file.profile[i].*member;
    for (const auto& [key, member] : k_bytes) entry[key] = file.profile[i].*member;
    out["nodes"].push_back(std::move(entry));
  }
  return out;
}

ProfileFile read_profile_file(const std::string& path) {
  const std::string text = read_text_file(path, size_t{64} << 20U);
  try {
    return from_json(train::parse_strict_json(text, path), path);
  } catch (const base::CheckpointError& error) { throw ConfigError("{}", error.what()); }
}

void check_same(const ProfileFile& saved, const ProfileFile& here, const std::string& path) {
  const auto refuse = [&](const std::string& what) {
    throw ConfigError("--profile-from {}: {}; measure anew with gpipe-train profile, or leave it out", path, what);
  };
  const size_t both = std::min(saved.nodes.size(), here.nodes.size());
  for (size_t i = 0; i < both; ++i)
    if (const std::string what = difference(saved.nodes[i], here.nodes[i]); !what.empty())
      refuse(fmt::format("it is of another network: of node {} ({}), {}", i + 1, here.nodes[i].name, what));
  if (saved.nodes.size() != here.nodes.size())
    refuse(fmt::format("it is of another network: {} nodes there, {} here", saved.nodes.size(), here.nodes.size()));
  if (saved.micro_batch != here.micro_batch)
    refuse(fmt::format("it is of another micro-batch: {} samples there, {} here", saved.micro_batch, here.micro_batch));
  // A library's words end with the precision, where it is not f32.
  const auto precision_of = [](const std::string& library) {
    const size_t at = library.rfind(" in ");
    return at == std::string::npos ? std::string("f32") : library.substr(at + 4);
  };
  if (precision_of(saved.library) != precision_of(here.library))
    refuse(fmt::format("it is of another train.precision: {} there, {} here", base::without_controls(precision_of(saved.library)),
                       precision_of(here.library)));
  if (saved.threads != here.threads)
    refuse(fmt::format("it is of another number of threads a stage: {} there, {} here", saved.threads, here.threads));
  if (saved.device != here.device)
    refuse(fmt::format("it is of another device: {} there, {} here", base::shown(saved.device), base::shown(here.device)));
}

}  // namespace gpipe::app
