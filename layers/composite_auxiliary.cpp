#include "core/graph/builder.h"

#include <fmt/format.h>

namespace gpipe::layers {
namespace {

struct AuxiliaryConfig {
  double weight = 1;
  base::Tree body;
};

const base::FieldSet<AuxiliaryConfig>& fields() {
  static const auto set = [] {
    base::FieldSet<AuxiliaryConfig> f{"auxiliary"};
    f.add("weight", &AuxiliaryConfig::weight).at_least(0, true).at_most(1e6).help("of its loss beside the main one");
    f.add("body", &AuxiliaryConfig::body)
        .required()
        .help("a list of layers; the last one gives the prediction")
        .raw_schema(R"({"$ref": "#/definitions/layers"})");
    return f;
  }();
  return set;
}

/// Side head (Szegedy et al. 2015, section 5): layers on the input with a loss of their own. The input passes through; evaluation
/// leaves the head out.
std::optional<graph::Bundle> expand(const graph::Expansion& e) {
  AuxiliaryConfig config;
  const size_t faults = e.builder.problems().errors().size();
  fields().read(e.arguments, e.path, config, e.builder.problems());
  if (e.builder.problems().errors().size() != faults) return std::nullopt;
  const auto last = e.builder.add_list(config.body, e.path + ".body", e.name, e.inputs);
  if (!last) return std::nullopt;
  if (last->values.size() != 1) {
    e.builder.problems().add(e.where, e.path, fmt::format("the head must give one value, found {}", last->size_text()));
    return std::nullopt;
  }
  if (!e.builder.add_loss(last->values.front(), config.weight, e.name + ".loss", e.where)) return std::nullopt;
  return e.inputs;
}

}  // namespace

const graph::CompositeType& auxiliary_composite() {
  static const graph::CompositeType type{"auxiliary", "a side head with a loss of its own; its input passes through", expand,
                                         [] { return fields().table(); }};
  return type;
}

}  // namespace gpipe::layers
