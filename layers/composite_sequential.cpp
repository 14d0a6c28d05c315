#include "core/graph/builder.h"

#include <fmt/format.h>

namespace gpipe::layers {
namespace {

struct SequentialConfig {
  base::Tree body;
};

const base::FieldSet<SequentialConfig>& fields() {
  static const auto set = [] {
    base::FieldSet<SequentialConfig> f{"sequential"};
    f.add("body", &SequentialConfig::body)
        .required()
        .help("a list of layers, one after the other")
        .raw_schema(R"({"$ref": "#/definitions/layers"})");
    return f;
  }();
  return set;
}

/// `sequential: [a, b]` or `sequential: {body: [a, b]}`: a name for a run of layers.
std::optional<graph::Bundle> expand(const graph::Expansion& e) {
  SequentialConfig config;
  std::string path = e.path;
  if (e.arguments.is_list()) {
    config.body = e.arguments;
  } else {
    fields().read(e.arguments, e.path, config, e.builder.problems());
    if (config.body.is_null()) return std::nullopt;
    path += ".body";
  }
  return e.builder.add_list(config.body, path, e.name, e.inputs);
}

}  // namespace

const graph::CompositeType& sequential_composite() {
  static const graph::CompositeType type{"sequential", "layers one after the other, under one name", expand,
                                         [] { return fields().table(); }};
  return type;
}

}  // namespace gpipe::layers
