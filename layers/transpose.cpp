// transpose: the axes of a sample in another order: torch.transpose (`swap`) and torch.permute (`axes`), without the batch.
#include "layers/rearrange.h"

#include <fmt/ranges.h>

#include <numeric>

namespace gpipe::layers {
namespace {

struct TransposeConfig {
  std::vector<int64_t> swap, axes;

  void finish(const base::Tree& tree, const std::string& path, base::Problems& problems) const {
    if (swap.empty() == axes.empty())
      problems.add(tree.where(), path, "wanted either `swap` or `axes`, found " + std::string(axes.empty() ? "neither" : "both"));
    if (!swap.empty() && swap.size() != 2)
      problems.add(place_of(tree, "swap"), base::detail::join_path(path, "swap"),
                   fmt::format("wanted two axes, found {}", swap.size()));
  }
};

const base::FieldSet<TransposeConfig>& transpose_fields() {
  static const auto fields = [] {
    base::FieldSet<TransposeConfig> f{"transpose"};
    f.add("swap", &TransposeConfig::swap).range(-5, 4).help("two axes of a sample, from 0; -1 is the last");
    f.add("axes", &TransposeConfig::axes).range(-5, 4).help("all axes of a sample in their new order");
    return f;
  }();
  return fields;
}

device::RearrangeSpec spec_of(const TransposeConfig& config, const Shape& input) {
  const std::vector<int64_t>& named = config.axes.empty() ? config.swap : config.axes;
  std::vector<int64_t> order(static_cast<size_t>(input.rank())), known;
  std::iota(order.begin(), order.end(), int64_t{0});
  known = order;
  std::vector<int64_t> axes = named;
  for (int64_t& axis : axes) {
    if (axis < 0) axis += input.rank();
    if (axis < 0 || axis >= input.rank())
      throw base::ConfigError("transpose: the sample {} has no such axes as [{}]", input, fmt::join(named, ", "));
  }
  if (config.axes.empty())
    std::swap(order[static_cast<size_t>(axes[0])], order[static_cast<size_t>(axes[1])]);
  else
    order = axes;
  std::vector<int64_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  if (sorted != known)
    throw base::ConfigError("transpose: axes [{}] do not name each axis of the sample {} once", fmt::join(named, ", "), input);
  device::RearrangeSpec spec = whole_of(input);
  std::vector<int64_t> extents;
  for (size_t k = 0; k < order.size(); ++k) {
    spec.axes[k] = static_cast<int>(order[k]);
    extents.push_back(input[spec.axes[k]]);
  }
  spec.output = Shape(std::span<const int64_t>(extents));
  return spec;
}

}  // namespace

const LayerType& transpose_layer() {
  static const LayerType type{
      .name = "transpose",
      .summary = "the axes of a sample in another order",
      .make = make_layer<RearrangeLayer<TransposeConfig, spec_of>, TransposeConfig, transpose_fields>,
      .fields = table_of<TransposeConfig, transpose_fields>,
  };
  return type;
}

}  // namespace gpipe::layers
