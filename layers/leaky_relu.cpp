// leaky_relu: torch.nn.functional.leaky_relu.
#include "layers/activation.h"

namespace gpipe::layers {
namespace {

struct LeakyReluConfig {
  double negative_slope = 0.01;
};

const base::FieldSet<LeakyReluConfig>& leaky_relu_fields() {
  static const auto fields = [] {
    base::FieldSet<LeakyReluConfig> f{"leaky_relu"};
    f.add("negative_slope", &LeakyReluConfig::negative_slope).help("factor of x where x < 0");
    return f;
  }();
  return fields;
}

std::unique_ptr<Layer> make(const base::Tree& arguments, const std::string& path, base::Problems& problems) {
  const size_t before = problems.errors().size();
  LeakyReluConfig config;
  leaky_relu_fields().read(arguments, path, config, problems);
  if (problems.errors().size() != before) return nullptr;
  return activation_layer({device::ActivationSpec::Kind::leaky_relu, config.negative_slope}, 2);
}

}  // namespace

const LayerType& leaky_relu_layer() {
  static const LayerType type{
      .name = "leaky_relu",
      .summary = "x where x > 0, else negative_slope x",
      .make = make,
      .fields = table_of<LeakyReluConfig, leaky_relu_fields>,
  };
  return type;
}

}  // namespace gpipe::layers
