#include "core/graph/builder.h"

#include <fmt/format.h>

#include <array>

namespace gpipe::layers {
namespace {

struct ResidualConfig {
  base::Tree body;
  base::Tree shortcut;
};

const base::FieldSet<ResidualConfig>& fields() {
  static const auto set = [] {
    base::FieldSet<ResidualConfig> f{"residual"};
    f.add("body", &ResidualConfig::body).required().help("a list of layers").raw_schema(R"({"$ref": "#/definitions/layers"})");
    f.add("shortcut", &ResidualConfig::shortcut)
        .help("a list of layers beside the body; without it the input itself is added")
        .raw_schema(R"({"$ref": "#/definitions/layers"})");
    return f;
  }();
  return set;
}

/// y = body(x) + shortcut(x) (He et al. 2016); the shortcut is the identity when it is left out.
std::optional<graph::Bundle> expand(const graph::Expansion& e) {
  ResidualConfig config;
  fields().read(e.arguments, e.path, config, e.builder.problems());
  if (config.body.is_null()) return std::nullopt;
  const auto input = e.one_input("residual");
  if (!input) return std::nullopt;
  const auto body = e.builder.add_branch(config.body, e.path + ".body", e.name + ".body", *input);
  if (!body) return std::nullopt;
  std::optional<int> shortcut = input;
  if (!config.shortcut.is_null())
    shortcut = e.builder.add_branch(config.shortcut, e.path + ".shortcut", e.name + ".shortcut", *input);
  if (!shortcut) return std::nullopt;
  const auto& a = e.builder.shape_of(*body);
  const auto& b = e.builder.shape_of(*shortcut);
  if (!(a == b)) {
    e.builder.problems().add(
        e.where, e.path,
        fmt::format("residual '{}': the body gives {}, the {} {}; both must be the same shape, e.g. by a `shortcut` with a "
                    "1x1 convolution",
                    e.name, a, config.shortcut.is_null() ? "input has" : "shortcut gives", b));
    return std::nullopt;
  }
  const std::array<int, 2> both{*body, *shortcut};
  return e.builder.add_node("add", {}, e.path, e.name + ".add", both, e.where);
}

}  // namespace

const graph::CompositeType& residual_composite() {
  static const graph::CompositeType type{"residual", "a body and a shortcut, added", expand, [] { return fields().table(); }};
  return type;
}

}  // namespace gpipe::layers
