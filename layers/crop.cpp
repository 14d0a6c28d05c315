// crop: positions off the ends of an image or a sequence, by numbers or down to a centred size; of an odd rest the end loses
// the larger half.
#include "layers/rearrange.h"

#include <fmt/ranges.h>

namespace gpipe::layers {
namespace {

struct CropConfig {
  std::vector<int64_t> cropping, size;

  void finish(const base::Tree& tree, const std::string& path, base::Problems& problems) const {
    if (cropping.empty() == size.empty())
      problems.add(tree.where(), path,
                   "wanted either `cropping` or `size`, found " + std::string(size.empty() ? "neither" : "both"));
  }
};

const base::FieldSet<CropConfig>& crop_fields() {
  static const auto fields = [] {
    base::FieldSet<CropConfig> f{"crop"};
    f.add("cropping", &CropConfig::cropping)
        .range(0, 1 << 20)
        .scalar_or_list()
        .help("to take off: a number, [top, bottom, left, right] of an image or [before, after] of a sequence");
    f.add("size", &CropConfig::size)
        .range(1, 1 << 20)
        .scalar_or_list()
        .help("to keep, in the middle: a number or [height, width]");
    return f;
  }();
  return fields;
}

device::RearrangeSpec spec_of(const CropConfig& config, const Shape& input) {
  Margins margins = margins_of("crop", config.cropping.empty() ? std::vector<int64_t>{0} : config.cropping, input);
  const std::vector<int64_t>& size = config.size;
  if (size.size() > 1 && size.size() != margins.size())
    throw base::ConfigError("crop: a size of [{}] does not say what to keep of {}", fmt::join(size, ", "), input);
  for (size_t k = 0; k < margins.size(); ++k) {
    auto& [before, after] = margins[k];
    if (!size.empty()) {
      const int64_t extent = input[static_cast<int>(k)], rest = extent - size[size.size() == 1 ? 0 : k];
      if (rest < 0) throw base::ConfigError("crop: a size of [{}] is larger than the input {}", fmt::join(size, ", "), input);
      before = rest / 2;
      after = rest - rest / 2;
    }
    before = -before;
    after = -after;
  }
  return with_margins("crop", input, margins, 0);
}

}  // namespace

const LayerType& crop_layer() {
  static const LayerType type{
      .name = "crop",
      .summary = "an image or a sequence without the positions at its ends",
      .make = make_layer<RearrangeLayer<CropConfig, spec_of>, CropConfig, crop_fields>,
      .fields = table_of<CropConfig, crop_fields>,
  };
  return type;
}

}  // namespace gpipe::layers
