// pad: torch.nn.functional.pad (constant): more positions at the ends, never more channels. A negative number takes positions
// off, so that `pad: {padding: [-1, 1, -1, 1]}` shifts an image by one up and left, with zeros at the bottom and the right.
#include "layers/rearrange.h"

namespace gpipe::layers {
namespace {

struct PadConfig {
  std::vector<int64_t> padding{0};
  double value = 0;
};

const base::FieldSet<PadConfig>& pad_fields() {
  static const auto fields = [] {
    base::FieldSet<PadConfig> f{"pad"};
    f.add("padding", &PadConfig::padding)
        .required()
        .range(-(1 << 20), 1 << 20)
        .scalar_or_list()
        .help("a number, [top, bottom, left, right] of an image or [before, after] of a sequence; below 0 takes off");
    f.add("value", &PadConfig::value).help("of the new positions");
    return f;
  }();
  return fields;
}

device::RearrangeSpec spec_of(const PadConfig& config, const Shape& input) {
  return with_margins("pad", input, margins_of("pad", config.padding, input), config.value);
}

}  // namespace

const LayerType& pad_layer() {
  static const LayerType type{
      .name = "pad",
      .summary = "positions of a constant at the ends of an image or a sequence",
      .make = make_layer<RearrangeLayer<PadConfig, spec_of>, PadConfig, pad_fields>,
      .fields = table_of<PadConfig, pad_fields>,
  };
  return type;
}

}  // namespace gpipe::layers
