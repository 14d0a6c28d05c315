// embedding: torch.nn.Embedding: a vector for each token id, optionally times a factor (sqrt of embedding_dim in Vaswani et
// al. 2017). i32 [T] -> [T, embedding_dim]. The vector of padding_idx starts at zero and gets no gradient from here.
#include "layers/initial.h"
#include "layers/support.h"

namespace gpipe::layers {
namespace {

struct EmbeddingConfig {
  int64_t num_embeddings = 0;
  int64_t embedding_dim = 0;
  int64_t padding_idx = -1;
  double scale = 1;
  base::Tree init;
  std::optional<InitRule> rule;  // read from it

  void finish(const base::Tree& arguments, const std::string& path, base::Problems& problems) {
    rule = read_init(init, base::detail::join_path(path, "init"), problems);
    if (padding_idx >= num_embeddings && num_embeddings > 0)
      problems.add(place_of(arguments, "padding_idx"), base::detail::join_path(path, "padding_idx"),
                   fmt::format("{} is not among the ids 0..{}", padding_idx, num_embeddings - 1));
  }
};

const base::FieldSet<EmbeddingConfig>& embedding_fields() {
  static const auto fields = [] {
    base::FieldSet<EmbeddingConfig> f{"embedding"};
    f.add("num_embeddings", &EmbeddingConfig::num_embeddings).required().range(1, 1 << 28).help("size of the vocabulary");
    f.add("embedding_dim", &EmbeddingConfig::embedding_dim).required().range(1, 1 << 24).help("length of a vector");
    f.add("padding_idx", &EmbeddingConfig::padding_idx)
        .at_least(-1)
        .help("id whose vector starts at zero and is not trained; -1: none");
    f.add("scale", &EmbeddingConfig::scale).help("factor of the vectors, often the root of embedding_dim");
    f.add("init", &EmbeddingConfig::init).help(std::string("start of the vectors: ") + init_help);
    return f;
  }();
  return fields;
}

class EmbeddingOperation final : public Operation {
 public:
  EmbeddingOperation(const EmbeddingConfig& config, device::Backend& backend)
      : op_(backend.embedding({config.num_embeddings, config.embedding_dim, config.scale, config.padding_idx})) {}

  Needs needs() const override { return {.inputs = true}; }
  bool has_backward_weight() const override { return true; }

  void forward(const ForwardCall& call, const NodeState& state) override {
    op_->forward(call.inputs[0], state.parameters[0], call.output);
  }
  void backward_input(const BackwardCall&, const NodeState&) override {}  // an id has no gradient
  void backward_weight(const BackwardCall& call, const NodeState& state) override {
    op_->backward_weight(call.inputs[0], call.dy, state.gradients[0], call.pass.micro > 0);
  }

 private:
  std::unique_ptr<device::EmbeddingOp> op_;
};

class Embedding final : public Layer {
 public:
  explicit Embedding(EmbeddingConfig config) : config_(std::move(config)) {}

  Shape output_shape(std::span<const Shape> inputs) const override {
    if (inputs[0].rank() != 1) throw base::ConfigError("embedding needs token ids [positions], its input is {}", inputs[0]);
    return {inputs[0][0], config_.embedding_dim};
  }
  DType output_type(std::span<const DType> inputs) const override {
    if (inputs[0] != DType::i32) throw base::ConfigError("embedding needs token ids (integers), its input is of real numbers");
    return DType::f32;
  }
  std::vector<graph::ParameterSpec> parameters(std::span<const Shape>) const override {
    const int64_t rows = config_.num_embeddings, columns = config_.embedding_dim;
    graph::Init start{graph::Init::Kind::normal, 0, 1};
    if (config_.rule) start = config_.rule->resolve(columns, rows);
    start.zero_row = config_.padding_idx;
    return {{"weight", {rows, columns}, start, true}};
  }
  Cost cost(std::span<const Shape>, const Shape& output) const override { return {output.elements(), 0, 2 * output.elements()}; }
  std::unique_ptr<Operation> plan(const PlanContext& context) const override {
    return std::make_unique<EmbeddingOperation>(config_, context.backend);
  }

 private:
  EmbeddingConfig config_;
};

}  // namespace

const LayerType& embedding_layer() {
  static const LayerType type{
      .name = "embedding",
      .summary = "a learned vector for each token id",
      .make = make_layer<Embedding, EmbeddingConfig, embedding_fields>,
      .fields = table_of<EmbeddingConfig, embedding_fields>,
  };
  return type;
}

}  // namespace gpipe::layers
