#include "core/graph/builder.h"

#include <fmt/format.h>

namespace gpipe::layers {
namespace {

struct RepeatConfig {
  int64_t times = 1;
  base::Tree body;
};

const base::FieldSet<RepeatConfig>& fields() {
  static const auto set = [] {
    base::FieldSet<RepeatConfig> f{"repeat"};
    f.add("times", &RepeatConfig::times).required().range(1, 10000).help("how often");
    f.add("body", &RepeatConfig::body).required().help("a list of layers").raw_schema(R"({"$ref": "#/definitions/layers"})");
    return f;
  }();
  return set;
}

/// The body again and again, each time with parameters of its own: names NAME.0, NAME.1, ...
std::optional<int> expand(const graph::Expansion& e) {
  RepeatConfig config;
  const size_t faults = e.builder.problems().errors().size();
  fields().read(e.arguments, e.path, config, e.builder.problems());
  if (e.builder.problems().errors().size() != faults) return std::nullopt;
  if (e.inputs.size() != 1) {
    e.builder.problems().add(e.where, e.path, fmt::format("repeat takes 1 input, found {}", e.inputs.size()));
    return std::nullopt;
  }
  std::optional<int> value = e.inputs.front();
  for (int64_t i = 0; i < config.times && value; ++i)
    value = e.builder.add_list(config.body, e.path + ".body", fmt::format("{}.{}", e.name, i), *value);
  return value;
}

}  // namespace

const graph::CompositeType& repeat_composite() {
  static const graph::CompositeType type{"repeat", "the same layers several times, each with its own parameters", expand,
                                         [] { return fields().table(); }};
  return type;
}

}  // namespace gpipe::layers
