#include "core/graph/builder.h"

#include <fmt/format.h>

namespace gpipe::layers {
namespace {

struct ConcatConfig {
  base::Tree branches;
};

const base::FieldSet<ConcatConfig>& fields() {
  static const auto set = [] {
    base::FieldSet<ConcatConfig> f{"concat"};
    f.add("branches", &ConcatConfig::branches)
        .required()
        .help("a list of lists of layers; an empty list passes the input on")
        .raw_schema(R"({"type": "array", "items": {"$ref": "#/definitions/layers"}})");
    return f;
  }();
  return set;
}

/// Branches side by side on the same input, their outputs joined along the channels.
std::optional<graph::Bundle> expand(const graph::Expansion& e) {
  ConcatConfig config;
  fields().read(e.arguments, e.path, config, e.builder.problems());
  if (!config.branches.is_list()) {
    if (!config.branches.is_null())
      e.builder.problems().add(config.branches.where(), e.path + ".branches",
                               fmt::format("a list of lists of layers is wanted, found {}", config.branches.kind_words()));
    return std::nullopt;
  }
  const auto input = e.one_input("concat");
  if (!input) return std::nullopt;
  std::vector<int> outputs;
  for (size_t i = 0; i < config.branches.items().size(); ++i) {
    const auto value = e.builder.add_branch(config.branches.items()[i], fmt::format("{}.branches.{}", e.path, i),
                                            fmt::format("{}.{}", e.name, i), *input);
    if (!value) return std::nullopt;
    outputs.push_back(*value);
  }
  return e.builder.add_node("concat", {}, e.path, e.name + ".concat", outputs, e.where);
}

}  // namespace

const graph::CompositeType& concat_composite() {
  static const graph::CompositeType type{"concat", "branches side by side, joined along the channels", expand,
                                         [] { return fields().table(); }};
  return type;
}

}  // namespace gpipe::layers
