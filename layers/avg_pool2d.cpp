// avg_pool2d: torch.nn.AvgPool2d.
#include "layers/pool2d.h"

namespace gpipe::layers {
namespace {

const base::FieldSet<Pool2dConfig>& avg_pool2d_fields() {
  static const auto fields = [] {
    base::FieldSet<Pool2dConfig> f{"avg_pool2d"};
    add_pool_fields(f);
    f.add("count_include_pad", &Pool2dConfig::count_include_pad).help("whether padding counts in the divisor");
    return f;
  }();
  return fields;
}

std::unique_ptr<Layer> make(const base::Tree& arguments, const std::string& path, base::Problems& problems) {
  const size_t before = problems.errors().size();
  Pool2dConfig config;
  avg_pool2d_fields().read(arguments, path, config, problems);
  config.finish(arguments, path, problems);
  if (problems.errors().size() != before) return nullptr;
  return pool2d_layer(
      "avg_pool2d", config.count_include_pad ? device::PoolSpec::Kind::average : device::PoolSpec::Kind::average_without_padding,
      config);
}

}  // namespace

const LayerType& avg_pool2d_layer() {
  static const LayerType type{
      .name = "avg_pool2d",
      .summary = "mean of every window",
      .make = make,
      .fields = table_of<Pool2dConfig, avg_pool2d_fields>,
  };
  return type;
}

}  // namespace gpipe::layers
