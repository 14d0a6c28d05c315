#include "core/graph/builder.h"

#include <fmt/format.h>

namespace gpipe::layers {
namespace {

struct RepeatConfig {
  int64_t times = 1;
  std::string index = "index";
  base::Tree body;
};

const base::FieldSet<RepeatConfig>& fields() {
  static const auto set = [] {
    base::FieldSet<RepeatConfig> f{"repeat"};
    f.add("times", &RepeatConfig::times).required().range(0, 10000).help("how often; after 0 times the input goes on as it is");
    f.add("index", &RepeatConfig::index).help("name of the number of the turn, from 0, in ${...} of the body");
    f.add("body", &RepeatConfig::body).required().help("a list of layers").raw_schema(R"({"$ref": "#/definitions/layers"})");
    return f;
  }();
  return set;
}

/// The body again and again, each time with parameters of its own: names NAME.0, NAME.1, ...
std::optional<graph::Bundle> expand(const graph::Expansion& e) {
  RepeatConfig config;
  const size_t faults = e.builder.problems().errors().size();
  fields().read(e.arguments, e.path, config, e.builder.problems());
  if (e.builder.problems().errors().size() != faults) return std::nullopt;
  if (!base::is_value_name(config.index)) {
    e.builder.problems().add(e.where, e.path + ".index",
                             fmt::format("{} is no name for a value: letters, digits and '_'", base::shown(config.index)));
    return std::nullopt;
  }
  std::optional<graph::Bundle> bundle = e.inputs;
  for (int64_t i = 0; i < config.times && bundle; ++i) {
    base::Names values(&e.builder.values());
    values.set(config.index, base::Tree::scalar(fmt::format("{}", i)));
    bundle = e.builder.add_list(config.body, e.path + ".body", fmt::format("{}.{}", e.name, i), *bundle, &values);
  }
  return bundle;
}

}  // namespace

const graph::CompositeType& repeat_composite() {
  static const graph::CompositeType type{"repeat", "the same layers several times, each with its own parameters", expand,
                                         [] { return fields().table(); }};
  return type;
}

}  // namespace gpipe::layers
