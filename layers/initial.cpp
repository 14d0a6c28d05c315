#include "layers/initial.h"

#include "core/base/choice.h"
#include "core/base/fields.h"

#include <cmath>
#include <numbers>

namespace gpipe::layers {
namespace {

using Fan = InitRule::Fan;
using Kind = graph::Init::Kind;

enum class Nonlinearity { linear, sigmoid, tanh, relu, leaky_relu, selu };
enum class Distribution { truncated_normal, untruncated_normal, uniform };

// The arguments of all initialisations; each has a table of its own with those that it knows.
struct InitConfig {
  Fan mode = Fan::fan_in;
  Nonlinearity nonlinearity = Nonlinearity::leaky_relu;
  double negative_slope = 0;
  double gain = 1;
  double mean = 0, std = 1;
  double from = -2, to = 2;
  double bound = 1;
  base::Tree low, high;
  double value = 0;
  int64_t groups = 1;
  double sparsity = 0.1;
  double variance = 1;
  Distribution distribution = Distribution::truncated_normal;
  double scale = 1, divide = 1;

  double factor() const { return scale / divide; }
};
using Fields = base::FieldSet<InitConfig>;

// One row: a name, its arguments and what they mean.
struct InitKind {
  const char* name;
  void (*add_fields)(Fields&);
  InitRule (*rule)(const InitConfig&);
};

const std::vector<std::string> nonlinearities = {"linear", "sigmoid", "tanh", "relu", "leaky_relu", "selu"};
const double root3 = std::numbers::sqrt3;  // a uniform distribution of deviation s reaches to s sqrt(3)

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

void no_fields(Fields&) {}
void kaiming_fields(Fields& f) {
  f.add("mode", &InitConfig::mode, {"fan_in", "fan_out"}).help("which fan keeps its variance");
  f.add("nonlinearity", &InitConfig::nonlinearity, nonlinearities).help("what follows the layer");
  f.add("a", &InitConfig::negative_slope).help("slope of leaky_relu");
}
void gain_fields(Fields& f) { f.add("gain", &InitConfig::gain).at_least(0).help("factor of the deviation"); }
void normal_fields(Fields& f) {
  f.add("mean", &InitConfig::mean).help("mean");
  f.add("std", &InitConfig::std).at_least(0).help("standard deviation");
}
void trunc_normal_fields(Fields& f) {
  f.add("mean", &InitConfig::mean).help("mean");
  f.add("std", &InitConfig::std).at_least(0, true).help("standard deviation, before the ends are cut off");
  f.add("a", &InitConfig::from).help("the smallest value");
  f.add("b", &InitConfig::to).help("the largest value");
}
void uniform_fields(Fields& f) {
  f.add("bound", &InitConfig::bound).at_least(0).help("b of [-b, b]");
  f.add("a", &InitConfig::low).help("the smallest value, with `b` in place of `bound`");
  f.add("b", &InitConfig::high).help("the largest value");
}
void constant_fields(Fields& f) { f.add("value", &InitConfig::value).help("every element"); }
void dirac_fields(Fields& f) { f.add("groups", &InitConfig::groups).range(1, 1 << 20).help("of the filters"); }
void sparse_fields(Fields& f) {
  f.add("sparsity", &InitConfig::sparsity).required().range(0, 1).help("share of zeros in every column");
  f.add("std", &InitConfig::std).at_least(0).help("standard deviation of the others");
}
void variance_fields(Fields& f) {
  f.add("scale", &InitConfig::variance).at_least(0, true).help("of the variance: scale / fan");
  f.add("mode", &InitConfig::mode, {"fan_in", "fan_out", "fan_avg"}).help("which fan, or the mean of both");
  f.add("distribution", &InitConfig::distribution, {"truncated_normal", "untruncated_normal", "uniform"})
      .help("truncated at two deviations, and widened to have the variance");
}

template <Kind kind>
InitRule kaiming(const InitConfig& c) {
  return {{kind, 0, gain_of(c.nonlinearity, c.negative_slope)}, c.mode, kind == Kind::uniform ? root3 : 1};
}
template <Kind kind>
InitRule xavier(const InitConfig& c) {
  return {{kind, 0, c.gain}, Fan::both, kind == Kind::uniform ? root3 : 1};
}
InitRule variance_scaling(const InitConfig& c) {
  const double deviation = std::sqrt(c.variance);
  if (c.distribution == Distribution::uniform) return {{Kind::uniform, 0, deviation}, c.mode, root3};
  if (c.distribution == Distribution::untruncated_normal) return {{Kind::normal, 0, deviation}, c.mode};
  return {{Kind::truncated_normal, 0, deviation}, c.mode, 1 / 0.87962566103423978};  // the deviation of N(0, 1) within two
}
template <Kind kind>
InitRule normal(const InitConfig& c) {
  return {{kind, c.mean, c.std}};
}
InitRule trunc_normal(const InitConfig& c) {
  return {{Kind::truncated_normal, c.mean, c.std, (c.from - c.mean) / c.std, (c.to - c.mean) / c.std}};
}
InitRule uniform(const InitConfig& c) { return {{Kind::uniform, 0, c.bound}}; }  // a and b: see read_range
InitRule constant(const InitConfig& c) { return {{Kind::constant, c.value, 0}}; }
InitRule zeros(const InitConfig&) { return {{Kind::constant, 0, 0}}; }
InitRule ones(const InitConfig&) { return {{Kind::constant, 1, 0}}; }
InitRule eye(const InitConfig&) { return {{Kind::eye, 0, 1}}; }
InitRule dirac(const InitConfig& c) { return {{.kind = Kind::dirac, .magnitude = 1, .groups = c.groups}}; }
InitRule orthogonal(const InitConfig& c) { return {{Kind::orthogonal, 0, c.gain}}; }
InitRule sparse(const InitConfig& c) { return {{.kind = Kind::sparse, .magnitude = c.std, .sparsity = c.sparsity}}; }

const InitKind kinds[] = {
    {"kaiming_uniform", kaiming_fields, kaiming<Kind::uniform>},
    {"kaiming_normal", kaiming_fields, kaiming<Kind::normal>},
    {"xavier_uniform", gain_fields, xavier<Kind::uniform>},
    {"xavier_normal", gain_fields, xavier<Kind::normal>},
    {"variance_scaling", variance_fields, variance_scaling},
    {"normal", normal_fields, normal<Kind::normal>},
    {"trunc_normal", trunc_normal_fields, trunc_normal},
    {"truncated_normal", normal_fields, normal<Kind::truncated_normal>},
    {"uniform", uniform_fields, uniform},
    {"constant", constant_fields, constant},
    {"zeros", no_fields, zeros},
    {"ones", no_fields, ones},
    {"eye", no_fields, eye},
    {"dirac", dirac_fields, dirac},
    {"orthogonal", gain_fields, orthogonal},
    {"sparse", sparse_fields, sparse},
};

Fields fields_of(const InitKind& kind) {
  Fields f(kind.name);
  kind.add_fields(f);
  const bool has_scale = std::any_of(f.infos().begin(), f.infos().end(), [](const auto& info) { return info.key == "scale"; });
  if (!has_scale) f.add("scale", &InitConfig::scale).help("times every value");
  f.add("divide", &InitConfig::divide).at_least(0, true).help("every value over this, such as the number of layers");
  return f;
}

// uniform's a and b, which replace its bound.
void read_range(const InitConfig& c, const base::Choice& choice, const std::string& path, base::Problems& problems,
                InitRule& rule) {
  if (c.low.is_null() && c.high.is_null()) return;
  const auto end = [&](const base::Tree& tree, const char* key) {
    base::FieldInfo info;
    info.key = key;
    info.type = base::FieldInfo::Type::number;
    return tree.is_null() ? std::nullopt : base::detail::read_number(tree, base::detail::join_path(path, key), info, problems);
  };
  const auto low = end(c.low, "a"), high = end(c.high, "b");
  if (!low || !high || *low > *high || choice.arguments.find("bound") != nullptr) {
    problems.add(choice.where, path, "wanted either `bound`, or both `a` and `b` with a <= b");
    return;
  }
  rule.init.value = (*low + *high) / 2;
  rule.init.magnitude = (*high - *low) / 2;
}

// Drawing again until a value lies inside must end.
void check_mass(const InitRule& rule, const base::Choice& choice, const std::string& path, base::Problems& problems) {
  if (rule.init.kind != Kind::truncated_normal) return;
  const auto below = [](double z) { return 0.5 * std::erfc(-z / std::numbers::sqrt2); };
  const double mass = below(rule.init.high) - below(rule.init.low);
  if (!(mass >= 1e-3))
    problems.add(choice.where, path,
                 fmt::format("wanted a and b with at least a thousandth of the normal distribution between them, found {:.2g}",
                             std::max(mass, 0.0)));
}

void check_target(const InitRule& rule, InitTarget target, const base::Choice& choice, const std::string& path,
                  base::Problems& problems) {
  const Kind kind = rule.init.kind;
  const auto refuse = [&](const char* why) { problems.add(choice.where, path, fmt::format("'{}' is for {}", choice.name, why)); };
  if (rule.fan && target == InitTarget::lone_vector) refuse("weights, whose connections it counts");
  const bool matrices = kind == Kind::eye || kind == Kind::sparse, filters = kind == Kind::dirac;
  if (!matrices && !filters && kind != Kind::orthogonal) return;
  if (target == InitTarget::vector || target == InitTarget::lone_vector) refuse("weights, not for a vector");
  if (matrices && target == InitTarget::filters) refuse("matrices, not for filters");
  if (filters && target == InitTarget::matrix) refuse("the filters of convolutions");
}

}  // namespace

const char* const init_help =
    "kaiming_uniform, kaiming_normal {mode, nonlinearity, a}, xavier_uniform, xavier_normal, orthogonal {gain}, "
    "variance_scaling {scale, mode, distribution}, normal, truncated_normal {mean, std}, trunc_normal {mean, std, a, b}, uniform "
    "{bound or a, b}, constant {value}, zeros, ones, eye, dirac {groups} or sparse {sparsity, std}; each also {scale, divide}; "
    "default: PyTorch's";

std::optional<InitRule> read_init(const base::Tree& tree, const std::string& path, base::Problems& problems, InitTarget target) {
  if (tree.is_null()) return std::nullopt;
  static const std::vector<std::string> known = [] {
    std::vector<std::string> names;
    for (const InitKind& kind : kinds) names.emplace_back(kind.name);
    return names;
  }();
  const std::optional<base::Choice> choice = base::read_choice(tree, path, "initialisation", known, problems);
  if (!choice) return std::nullopt;
  const InitKind& kind =
      *std::find_if(std::begin(kinds), std::end(kinds), [&](const InitKind& k) { return choice->name == k.name; });
  const std::string below = base::detail::join_path(path, choice->name);
  const size_t before = problems.errors().size();
  InitConfig config;
  fields_of(kind).read(choice->arguments, below, config, problems);
  if (problems.errors().size() != before) return std::nullopt;
  InitRule rule = kind.rule(config);
  read_range(config, *choice, below, problems, rule);
  check_mass(rule, *choice, below, problems);
  check_target(rule, target, *choice, below, problems);
  rule.init.value *= config.factor();
  rule.init.magnitude *= config.factor();
  return rule;
}

graph::Init InitRule::resolve(int64_t fan_in, int64_t fan_out_count) const {
  if (!fan) return init;
  const double in = static_cast<double>(fan_in), out = static_cast<double>(fan_out_count);
  graph::Init resolved = init;
  const double deviation = *fan == Fan::both ? init.magnitude * std::sqrt(2.0 / (in + out))
                                             : init.magnitude / std::sqrt(*fan == Fan::fan_in ? in : out);
  resolved.magnitude = deviation * to_magnitude;
  return resolved;
}

graph::Init default_init(int64_t fan_in) {
  return {graph::Init::Kind::uniform, 0, fan_in > 0 ? 1.0 / std::sqrt(static_cast<double>(fan_in)) : 0.0};
}

}  // namespace gpipe::layers
