// gelu: torch.nn.functional.gelu.
#include "layers/activation.h"

namespace gpipe::layers {
namespace {

enum class Approximate { none, tanh };

struct GeluConfig {
  Approximate approximate = Approximate::none;
};

const base::FieldSet<GeluConfig>& gelu_fields() {
  static const auto fields = [] {
    base::FieldSet<GeluConfig> f{"gelu"};
    f.add("approximate", &GeluConfig::approximate, {"none", "tanh"}).help("none: by the normal distribution; tanh: by its fit");
    return f;
  }();
  return fields;
}

std::unique_ptr<Layer> make(const base::Tree& arguments, const std::string& path, base::Problems& problems) {
  const size_t before = problems.errors().size();
  GeluConfig config;
  gelu_fields().read(arguments, path, config, problems);
  if (problems.errors().size() != before) return nullptr;
  using Kind = device::ActivationSpec::Kind;
  return activation_layer({config.approximate == Approximate::tanh ? Kind::gelu_tanh : Kind::gelu}, 12);
}

}  // namespace

const LayerType& gelu_layer() {
  static const LayerType type{
      .name = "gelu",
      .summary = "x times the normal distribution at x",
      .make = make,
      .fields = table_of<GeluConfig, gelu_fields>,
  };
  return type;
}

}  // namespace gpipe::layers
