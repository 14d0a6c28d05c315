// clip: torch.clamp, to [min, max] or by magnitude. As torch.clamp's, the gradient passes where min <= x <= max and is zero
// elsewhere: what was clipped learns nothing from this value.
#include "layers/activation.h"

#include <limits>
#include <optional>

namespace gpipe::layers {
namespace {

struct ClipConfig {
  base::Tree min, max, magnitude;
};

const char* const number_schema = R"({"type": ["number", "null"]})";

const base::FieldSet<ClipConfig>& clip_fields() {
  static const auto fields = [] {
    base::FieldSet<ClipConfig> f{"clip"};
    f.add("min", &ClipConfig::min).raw_schema(number_schema).help("the smallest value; none: no limit");
    f.add("max", &ClipConfig::max).raw_schema(number_schema).help("the largest value; none: no limit");
    f.add("magnitude", &ClipConfig::magnitude).raw_schema(number_schema).help("m of [-m, m], in place of min and max");
    return f;
  }();
  return fields;
}

std::optional<double> number_of(const base::Tree& tree, const std::string& path, const char* key, base::Problems& problems) {
  if (tree.is_null()) return std::nullopt;
  base::FieldInfo info;
  info.key = key;
  info.type = base::FieldInfo::Type::number;
  if (info.key == "magnitude") info.low = 0;
  return base::detail::read_number(tree, base::detail::join_path(path, key), info, problems);
}

std::unique_ptr<Layer> make(const base::Tree& arguments, const std::string& path, base::Problems& problems) {
  const size_t before = problems.errors().size();
  ClipConfig config;
  clip_fields().read(arguments, path, config, problems);
  const auto low = number_of(config.min, path, "min", problems), high = number_of(config.max, path, "max", problems);
  const auto magnitude = number_of(config.magnitude, path, "magnitude", problems);
  if (problems.errors().size() != before) return nullptr;
  if (magnitude.has_value() == (low || high)) {
    problems.add(arguments.where(), path,
                 std::string("wanted `min`, `max` or both, or else `magnitude`, found ") + (magnitude ? "both kinds" : "none"));
    return nullptr;
  }
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const double from = magnitude ? -*magnitude : low.value_or(-infinity), to = magnitude ? *magnitude : high.value_or(infinity);
  if (from > to) {
    problems.add(arguments.where(), path, fmt::format("wanted min <= max, found {} and {}", from, to));
    return nullptr;
  }
  return activation_layer({.kind = device::ActivationSpec::Kind::clip, .low = from, .high = to}, 2);
}

}  // namespace

const LayerType& clip_layer() {
  static const LayerType type{
      .name = "clip",
      .summary = "values outside of [min, max] become the nearer end and pass no gradient",
      .make = make,
      .fields = table_of<ClipConfig, clip_fields>,
  };
  return type;
}

}  // namespace gpipe::layers
