// max_pool2d: torch.nn.MaxPool2d: the first of equal maxima gets the gradient, NaN counts as the largest.
#include "layers/pool2d.h"

namespace gpipe::layers {
namespace {

const base::FieldSet<Pool2dConfig>& max_pool2d_fields() {
  static const auto fields = [] {
    base::FieldSet<Pool2dConfig> f{"max_pool2d"};
    add_pool_fields(f);
    return f;
  }();
  return fields;
}

std::unique_ptr<Layer> make(const base::Tree& arguments, const std::string& path, base::Problems& problems) {
  const size_t before = problems.errors().size();
  Pool2dConfig config;
  max_pool2d_fields().read(arguments, path, config, problems);
  config.finish(arguments, path, problems);
  if (problems.errors().size() != before) return nullptr;
  return pool2d_layer("max_pool2d", device::PoolSpec::Kind::max, config);
}

}  // namespace

const LayerType& max_pool2d_layer() {
  static const LayerType type{
      .name = "max_pool2d",
      .summary = "largest element of every window",
      .make = make,
      .fields = table_of<Pool2dConfig, max_pool2d_fields>,
  };
  return type;
}

}  // namespace gpipe::layers
