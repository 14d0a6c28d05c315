// attention: torch.nn.MultiheadAttention as one node, its projections included, by its parameters' names.
//
//   inputs: [x] for self-attention, [x, memory] for cross-attention; with `padding` also the i32 tokens of the keys' side, last.
//   x [T, C], memory [S, C], tokens [S] (or [T]) -> [T, C]. A query that sees no key gives the bias of out_proj.
//
// Nothing of size T x S is kept: forward saves the projections, the context before out_proj and the logarithm of each query's
// sum of exponents; backward computes the probabilities again, tile by tile (Dao et al. 2022, arXiv 2205.14135), and turns the
// saved projections into their gradients, which backward_weight reads.
#include "layers/attention_operation.h"
#include "layers/initial.h"

#include <cmath>
#include <limits>

namespace gpipe::layers {
namespace {

struct AttentionConfig : AttentionArguments {
  base::Tree init, out_init;
  std::optional<InitRule> in_rule, out_rule;  // read from these

  void finish(const base::Tree&, const std::string& path, base::Problems& problems) {
    in_rule = read_init(init, base::detail::join_path(path, "init"), problems);
    out_rule = read_init(out_init, base::detail::join_path(path, "out_init"), problems);
  }
};

const base::FieldSet<AttentionConfig>& attention_fields() {
  static const auto fields = [] {
    base::FieldSet<AttentionConfig> f{"attention"};
    f.add("heads", &AttentionConfig::heads).required().range(1, 1 << 16).help("number of heads");
    f.add("head_dim", &AttentionConfig::head_dim).range(0, 1 << 16).help("features of a head; 0: the input's divided by heads");
    f.add("bias", &AttentionConfig::bias).help("add a bias to the projections");
    f.add("causal", &AttentionConfig::causal).help("a position sees itself and those before it");
    f.add("dropout", &AttentionConfig::dropout).range(0, 1, true).help("probability of dropping an attention probability");
    f.add("padding", &AttentionConfig::padding)
        .range(-1, std::numeric_limits<int32_t>::max())
        .help("token id whose keys are not seen; the tokens are the last input; -1: all are seen");
    f.add("init", &AttentionConfig::init).help(std::string("start of in_proj_weight: ") + init_help);
    f.add("out_init", &AttentionConfig::out_init).help("start of out_proj.weight, in the same words");
    return f;
  }();
  return fields;
}

class Attention final : public Layer {
 public:
  explicit Attention(AttentionConfig config) : config_(std::move(config)) {}

  Shape output_shape(std::span<const Shape> inputs) const override {
    const size_t values = config_.values(inputs.size());
    if (values < 1 || values > 2)
      throw base::ConfigError("attention takes x or x and memory{}, found {} inputs",
                              config_.padding >= 0 ? ", and then the tokens that `padding` looks at" : "", inputs.size());
    for (size_t i = 0; i < values; ++i)
      if (inputs[i].rank() != 2)
        throw base::ConfigError("attention needs [positions, features], its {} is {}", i == 0 ? "input" : "memory", inputs[i]);
    const Shape &x = inputs[0], &source = inputs[values - 1];
    if (source[1] != x[1]) throw base::ConfigError("attention needs as many features in its memory {} as in {}", source, x);
    if (config_.causal && values == 2)
      throw base::ConfigError("causal attention is of one sequence with itself, found a memory {}", source);
    if (config_.padding >= 0 && inputs.back() != Shape{source[0]})
      throw base::ConfigError("attention needs a token for each of the {} keys, its last input is {}", source[0], inputs.back());
    if (config_.head_dim == 0 && x[1] % config_.heads != 0)
      throw base::ConfigError("{} heads do not divide the {} features of {}; set head_dim", config_.heads, x[1], x);
    return x;
  }
  DType output_type(std::span<const DType> inputs) const override {
    const size_t values = config_.values(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i)
      if (inputs[i] != (i < values ? DType::f32 : DType::i32))
        throw base::ConfigError("attention needs {} as input {}, found {}",
                                i < values ? "numbers" : "the token ids that `padding` looks at", i + 1,
                                tensor::name_of(inputs[i]));
    return DType::f32;
  }

  std::vector<graph::ParameterSpec> parameters(std::span<const Shape> inputs) const override {
    const int64_t channels = inputs[0][1], width = resolved(channels).width();
    const graph::Init zero{graph::Init::Kind::constant, 0, 0};
    const InitRule xavier{{graph::Init::Kind::uniform, 0, 1}, InitRule::Fan::both, std::sqrt(3.0)};  // Glorot and Bengio 2010
    std::vector<graph::ParameterSpec> all;
    all.push_back({"in_proj_weight", {3 * width, channels}, config_.in_rule.value_or(xavier).resolve(channels, 3 * width), true});
    if (config_.bias) all.push_back({"in_proj_bias", {3 * width}, zero, false});
    all.push_back({"out_proj.weight",
                   {channels, width},
                   config_.out_rule ? config_.out_rule->resolve(width, channels) : default_init(width),
                   true});
    if (config_.bias) all.push_back({"out_proj.bias", {channels}, zero, false});
    return all;
  }

  Cost cost(std::span<const Shape> inputs, const Shape& output) const override {
    const int64_t channels = output[1], width = resolved(channels).width();
    const int64_t queries = output[0], keys = inputs[config_.values(inputs.size()) - 1][0];
    const int64_t maps = 2 * channels * width * (2 * queries + 2 * keys);
    const int64_t product = 2 * queries * keys * width / (config_.causal ? 2 : 1);  // one of queries and keys
    return {maps + 2 * product, maps + 5 * product, maps};
  }
  std::unique_ptr<Operation> plan(const PlanContext& context) const override {
    return plan_attention(resolved(context.inputs[0][1]), context);
  }

 private:
  AttentionArguments resolved(int64_t channels) const {
    AttentionArguments arguments = config_;
    if (arguments.head_dim == 0) arguments.head_dim = channels / arguments.heads;
    return arguments;
  }

  AttentionConfig config_;
};

}  // namespace

const LayerType& attention_layer() {
  static const LayerType type{
      .name = "attention",
      .summary = "multi-head attention with its projections, of a sequence to itself or to another",
      .max_inputs = 3,
      .make = make_layer<Attention, AttentionConfig, attention_fields>,
      .fields = table_of<AttentionConfig, attention_fields>,
  };
  return type;
}

}  // namespace gpipe::layers
