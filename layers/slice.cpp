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

class Slice final : public Layer {
 public:
  explicit Slice(const SliceConfig& config) : config_(config) {}

  Shape output_shape(std::span<const Shape> inputs) const override { return spec(inputs[0]).output; }
  Cost cost(std::span<const Shape>, const Shape&) const override { return {}; }
  std::unique_ptr<Operation> plan(const PlanContext& context) const override {
    return plan_rearrange(spec(context.inputs[0]), context);
  }

 private:
  device::RearrangeSpec spec(const Shape& input) const {
    const int64_t axis = config_.axis < 0 ? config_.axis + input.rank() : config_.axis;
    if (axis < 0 || axis >= input.rank()) throw base::ConfigError("slice: the sample {} has no axis {}", input, config_.axis);
    const int64_t extent = input[static_cast<int>(axis)];
    const auto counted = [&](int64_t index) { return index < 0 ? index + extent : index; };
    const int64_t begin = counted(config_.begin), end = config_.stop ? counted(*config_.stop) : extent;
    if (begin < 0 || end > extent || begin >= end)
      throw base::ConfigError(
          "slice: axis {} of the sample {} has {} indices, wanted were {} to {}: nothing, or more than there is", config_.axis,
          input, extent, config_.begin, config_.stop ? std::to_string(*config_.stop) : "its end");
    device::RearrangeSpec spec = whole_of(input);
    std::vector<int64_t> extents(input.extents().begin(), input.extents().end());
    extents[static_cast<size_t>(axis)] = end - begin;
    spec.offset[static_cast<size_t>(axis)] = begin;
    spec.output = Shape(std::span<const int64_t>(extents));
    return spec;
  }
  SliceConfig config_;
};

}  // namespace

const LayerType& slice_layer() {
  static const LayerType type{
      .name = "slice",
      .summary = "a range of the indices of one axis",
      .make = make_layer<Slice, SliceConfig, slice_fields>,
      .fields = table_of<SliceConfig, slice_fields>,
  };
  return type;
}

}  // namespace gpipe::layers
