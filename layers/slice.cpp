// slice: the indices begin to end (not included) of one axis of a sample; negative ones count from its end, as in Python.
#include "layers/rearrange.h"

namespace gpipe::layers {
namespace {

struct SliceConfig {
  int64_t axis = -1, begin = 0;
  base::Tree end;
  std::optional<int64_t> stop;  // read from `end`

  void finish(const base::Tree&, const std::string& path, base::Problems& problems) {
    base::FieldInfo info;
    info.key = "end";
    info.type = base::FieldInfo::Type::integer;
    if (!end.is_null()) stop = base::detail::read_integer(end, base::detail::join_path(path, "end"), info, problems);
  }
};

const base::FieldSet<SliceConfig>& slice_fields() {
  static const auto fields = [] {
    base::FieldSet<SliceConfig> f{"slice"};
    f.add("axis", &SliceConfig::axis).range(-5, 4).help("of a sample, from 0; -1 is the last (the channels)");
    f.add("begin", &SliceConfig::begin).help("the first index; below 0 from the end");
    f.add("end", &SliceConfig::end)
        .raw_schema(R"({"type": ["integer", "null"]})")
        .help("the index after the last; below 0 from the end; none: to the end");
    return f;
  }();
  return fields;
}

device::RearrangeSpec spec_of(const SliceConfig& config, const Shape& input) {
  const int64_t axis = config.axis < 0 ? config.axis + input.rank() : config.axis;
  if (axis < 0 || axis >= input.rank()) throw base::ConfigError("slice: the sample {} has no axis {}", input, config.axis);
  const int64_t extent = input[static_cast<int>(axis)];
  const auto counted = [&](int64_t index) { return index < 0 ? index + extent : index; };
  const int64_t begin = counted(config.begin), end = config.stop ? counted(*config.stop) : extent;
  if (begin < 0 || end > extent || begin >= end)
    throw base::ConfigError(
        "slice: axis {} of the sample {} has {} indices, wanted were {} to {}: nothing, or more than there is", config.axis,
        input, extent, config.begin, config.stop ? std::to_string(*config.stop) : "its end");
  device::RearrangeSpec spec = whole_of(input);
  std::vector<int64_t> extents(input.extents().begin(), input.extents().end());
  extents[static_cast<size_t>(axis)] = end - begin;
  spec.offset[static_cast<size_t>(axis)] = begin;
  spec.output = Shape(std::span<const int64_t>(extents));
  return spec;
}

}  // namespace

const LayerType& slice_layer() {
  static const LayerType type{
      .name = "slice",
      .summary = "a range of the indices of one axis",
      .make = make_layer<RearrangeLayer<SliceConfig, spec_of>, SliceConfig, slice_fields>,
      .fields = table_of<SliceConfig, slice_fields>,
  };
  return type;
}

}  // namespace gpipe::layers
