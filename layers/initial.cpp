#include "layers/initial.h"

#include "core/base/choice.h"
#include "core/base/fields.h"

#include <cmath>

namespace gpipe::layers {
namespace {

using Kind = InitRule::Kind;

enum class Fan { fan_in, fan_out };
enum class Nonlinearity { linear, sigmoid, tanh, relu, leaky_relu, selu };

struct KaimingConfig {
  Fan mode = Fan::fan_in;
  Nonlinearity nonlinearity = Nonlinearity::leaky_relu;
  double a = 0;
};
struct XavierConfig {
  double gain = 1;
};
struct NormalConfig {
  double mean = 0, std = 1;
};
struct UniformConfig {
  double bound = 1;
};
struct ConstantConfig {
  double value = 0;
};
struct NoConfig {};

// torch.nn.init.calculate_gain
double gain_of(Nonlinearity nonlinearity, double a) {
  switch (nonlinearity) {
    case Nonlinearity::linear:
    case Nonlinearity::sigmoid: return 1;
    case Nonlinearity::tanh: return 5.0 / 3;
    case Nonlinearity::relu: return std::sqrt(2.0);
    case Nonlinearity::leaky_relu: return std::sqrt(2.0 / (1 + a * a));
    case Nonlinearity::selu: return 0.75;
  }
  return 1;
}

InitRule read_kaiming(Kind kind, const base::Choice& choice, const std::string& path, base::Problems& problems) {
  base::FieldSet<KaimingConfig> fields(choice.name);
  fields.add("mode", &KaimingConfig::mode, {"fan_in", "fan_out"}).help("which fan keeps its variance");
  fields.add("nonlinearity", &KaimingConfig::nonlinearity, {"linear", "sigmoid", "tanh", "relu", "leaky_relu", "selu"})
      .help("what follows the layer");
  fields.add("a", &KaimingConfig::a).help("slope of leaky_relu");
  KaimingConfig config;
  fields.read(choice.arguments, path, config, problems);
  InitRule rule;
  rule.kind = kind;
  rule.fan_out = config.mode == Fan::fan_out;
  rule.gain = gain_of(config.nonlinearity, config.a);
  return rule;
}

InitRule read_xavier(Kind kind, const base::Choice& choice, const std::string& path, base::Problems& problems) {
  base::FieldSet<XavierConfig> fields(choice.name);
  fields.add("gain", &XavierConfig::gain).at_least(0).help("factor of the deviation");
  XavierConfig config;
  fields.read(choice.arguments, path, config, problems);
  InitRule rule;
  rule.kind = kind;
  rule.gain = config.gain;
  return rule;
}

InitRule read_normal(Kind kind, const base::Choice& choice, const std::string& path, base::Problems& problems) {
  base::FieldSet<NormalConfig> fields(choice.name);
  fields.add("mean", &NormalConfig::mean).help("mean");
  fields.add("std", &NormalConfig::std).at_least(0).help("standard deviation");
  NormalConfig config;
  fields.read(choice.arguments, path, config, problems);
  InitRule rule;
  rule.kind = kind;
  rule.mean = config.mean;
  rule.std = config.std;
  return rule;
}

InitRule read_uniform(const base::Choice& choice, const std::string& path, base::Problems& problems) {
  base::FieldSet<UniformConfig> fields(choice.name);
  fields.add("bound", &UniformConfig::bound).at_least(0).help("b of [-b, b]");
  UniformConfig config;
  fields.read(choice.arguments, path, config, problems);
  InitRule rule;
  rule.kind = Kind::uniform;
  rule.bound = config.bound;
  return rule;
}

InitRule read_constant(const base::Choice& choice, const std::string& path, base::Problems& problems) {
  InitRule rule;
  rule.kind = Kind::constant;
  if (choice.name != "constant") {
    base::FieldSet<NoConfig> fields(choice.name);
    NoConfig none;
    fields.read(choice.arguments, path, none, problems);
    rule.value = choice.name == "ones" ? 1 : 0;
    return rule;
  }
  base::FieldSet<ConstantConfig> fields(choice.name);
  fields.add("value", &ConstantConfig::value).help("every element");
  ConstantConfig config;
  fields.read(choice.arguments, path, config, problems);
  rule.value = config.value;
  return rule;
}

}  // namespace

const char* const init_help =
    "kaiming_uniform, kaiming_normal {mode, nonlinearity, a}, xavier_uniform, xavier_normal {gain}, normal, truncated_normal "
    "{mean, std}, uniform {bound}, constant {value}, zeros or ones; default: PyTorch's";

std::optional<InitRule> read_init(const base::Tree& tree, const std::string& path, base::Problems& problems) {
  if (tree.is_null()) return std::nullopt;
  static const std::vector<std::string> known = {
      "kaiming_uniform",  "kaiming_normal", "xavier_uniform", "xavier_normal", "normal",
      "truncated_normal", "uniform",        "constant",       "zeros",         "ones"};
  const std::optional<base::Choice> choice = base::read_choice(tree, path, "initialisation", known, problems);
  if (!choice) return std::nullopt;
  const std::string below = base::detail::join_path(path, choice->name);
  if (choice->name == "kaiming_uniform") return read_kaiming(Kind::kaiming_uniform, *choice, below, problems);
  if (choice->name == "kaiming_normal") return read_kaiming(Kind::kaiming_normal, *choice, below, problems);
  if (choice->name == "xavier_uniform") return read_xavier(Kind::xavier_uniform, *choice, below, problems);
  if (choice->name == "xavier_normal") return read_xavier(Kind::xavier_normal, *choice, below, problems);
  if (choice->name == "normal") return read_normal(Kind::normal, *choice, below, problems);
  if (choice->name == "truncated_normal") return read_normal(Kind::truncated_normal, *choice, below, problems);
  if (choice->name == "uniform") return read_uniform(*choice, below, problems);
  return read_constant(*choice, below, problems);
}

graph::Init InitRule::resolve(int64_t fan_in, int64_t fan_out_count) const {
  using Distribution = graph::Init::Kind;
  const double kaiming = gain / std::sqrt(static_cast<double>(fan_out ? fan_out_count : fan_in));
  const double xavier = gain * std::sqrt(2.0 / static_cast<double>(fan_in + fan_out_count));
  const double to_bound = std::sqrt(3.0);  // a uniform distribution of deviation s reaches to s sqrt(3)
  switch (kind) {
    case Kind::kaiming_uniform: return {Distribution::uniform, 0, kaiming * to_bound};
    case Kind::kaiming_normal: return {Distribution::normal, 0, kaiming};
    case Kind::xavier_uniform: return {Distribution::uniform, 0, xavier * to_bound};
    case Kind::xavier_normal: return {Distribution::normal, 0, xavier};
    case Kind::normal: return {Distribution::normal, mean, std};
    case Kind::truncated_normal: return {Distribution::truncated_normal, mean, std};
    case Kind::uniform: return {Distribution::uniform, 0, bound};
    case Kind::constant: return {Distribution::constant, value, 0};
  }
  throw base::BugError("unknown initialisation {}", static_cast<int>(kind));
}

graph::Init default_init(int64_t fan_in) {
  return {graph::Init::Kind::uniform, 0, fan_in > 0 ? 1.0 / std::sqrt(static_cast<double>(fan_in)) : 0.0};
}

}  // namespace gpipe::layers
