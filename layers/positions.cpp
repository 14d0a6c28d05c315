// positions: adds a vector for each position to x [T, C]: learned, or the sines and cosines of Vaswani et al. 2017, section 3.5:
// table[t, 2i] = sin(t / 10000^(2i / C)), table[t, 2i + 1] = cos of the same.
#include "layers/initial.h"
#include "layers/support.h"

#include <cmath>

namespace gpipe::layers {
namespace {

enum class PositionKind { learned, sinusoidal };

struct PositionsConfig {
  PositionKind kind = PositionKind::learned;
  int64_t max_length = 0;
  base::Tree init;
  std::optional<InitRule> rule;  // read from it

  void finish(const base::Tree& arguments, const std::string& path, base::Problems& problems) {
    rule = read_init(init, base::detail::join_path(path, "init"), problems);
    if (kind == PositionKind::sinusoidal && rule)
      problems.add(place_of(arguments, "init"), base::detail::join_path(path, "init"),
                   "is for learned positions; sinusoidal ones have nothing to start");
  }
};

const base::FieldSet<PositionsConfig>& positions_fields() {
  static const auto fields = [] {
    base::FieldSet<PositionsConfig> f{"positions"};
    f.add("kind", &PositionsConfig::kind, {"learned", "sinusoidal"}).help("where the vectors come from");
    f.add("max_length", &PositionsConfig::max_length)
        .range(0, 1 << 24)
        .help("rows of the learned table; 0: as many as the input has positions");
    f.add("init", &PositionsConfig::init).help(std::string("start of the table: ") + init_help);
    return f;
  }();
  return fields;
}

/// The rows that the input has positions for.
TensorView head_of(const TensorView& table, const Shape& sample) { return {table.data, sample}; }

class LearnedOperation final : public Operation {
 public:
  explicit LearnedOperation(const PlanContext& context)
      : sample_(context.inputs[0]), backend_(context.backend), op_(context.backend.sample_add()) {}

  Needs needs() const override { return {.in_place = true, .gradient_in_place = true}; }
  bool has_backward_weight() const override { return true; }
  void forward(const ForwardCall& call, const NodeState& state) override {
    op_->forward(call.inputs[0], head_of(state.parameters[0], sample_), call.output);
  }
  void backward_input(const BackwardCall& call, const NodeState&) override {
    if (call.dx[0] && call.dx[0].data != call.dy.data) backend_.copy(call.dy, call.dx[0]);
  }
  void backward_weight(const BackwardCall& call, const NodeState& state) override {
    const TensorView& gradient = state.gradients[0];
    op_->backward_weight(call.dy, head_of(gradient, sample_), call.pass.micro > 0);
    const int64_t unused = gradient.elements() - sample_.elements();
    if (call.pass.micro == 0 && unused > 0)
      backend_.fill({gradient.data + static_cast<size_t>(sample_.elements()) * sizeof(float), Shape{unused}}, 0.0F);
  }

 private:
  Shape sample_;
  device::Backend& backend_;
  std::unique_ptr<device::SampleAddOp> op_;
};

class SinusoidalOperation final : public Operation {
 public:
  explicit SinusoidalOperation(const PlanContext& context)
      : backend_(context.backend),
        op_(context.backend.sample_add()),
        memory_(context.backend.allocate(static_cast<size_t>(context.inputs[0].elements()) * sizeof(float))),
        table_{memory_->data(), context.inputs[0]} {
    const auto host = backend_.allocate_pinned(table_.bytes());
    const TensorView rows{host->data(), table_.shape};
    const int64_t channels = rows.shape[1];
    for (int64_t t = 0; t < rows.shape[0]; ++t)
      for (int64_t c = 0; c < channels; ++c) {
        const double angle =
            static_cast<double>(t) / std::pow(10000.0, static_cast<double>(c - c % 2) / static_cast<double>(channels));
        rows.f32()[t * channels + c] = static_cast<float>(c % 2 == 0 ? std::sin(angle) : std::cos(angle));
      }
    const auto done = backend_.make_event();
    backend_.upload(host->data(), table_, *done);
    backend_.wait(*done);
    backend_.synchronize();
  }

  Needs needs() const override { return {.in_place = true, .gradient_in_place = true, .pass_through = true}; }
  void forward(const ForwardCall& call, const NodeState&) override { op_->forward(call.inputs[0], table_, call.output); }
  void backward_input(const BackwardCall& call, const NodeState&) override {
    if (call.dx[0] && call.dx[0].data != call.dy.data) backend_.copy(call.dy, call.dx[0]);
  }

 private:
  device::Backend& backend_;
  std::unique_ptr<device::SampleAddOp> op_;
  std::unique_ptr<device::Memory> memory_;
  TensorView table_;
};

class Positions final : public Layer {
 public:
  explicit Positions(PositionsConfig config) : config_(std::move(config)) {}

  Shape output_shape(std::span<const Shape> inputs) const override {
    const Shape& x = inputs[0];
    if (x.rank() != 2) throw base::ConfigError("positions needs [positions, features], its input is {}", x);
    if (config_.max_length > 0 && x[0] > config_.max_length)
      throw base::ConfigError("positions has max_length {}, its input {} has {} positions", config_.max_length, x, x[0]);
    return x;
  }
  std::vector<graph::ParameterSpec> parameters(std::span<const Shape> inputs) const override {
    if (config_.kind == PositionKind::sinusoidal) return {};
    const int64_t rows = config_.max_length > 0 ? config_.max_length : inputs[0][0], columns = inputs[0][1];
    const graph::Init standard{graph::Init::Kind::normal, 0, 1};
    return {{"weight", {rows, columns}, config_.rule ? config_.rule->resolve(columns, rows) : standard, true}};
  }
  bool uses_head_of_parameters() const override { return config_.kind == PositionKind::learned; }
  Cost cost(std::span<const Shape>, const Shape& output) const override {
    return {output.elements(), 0, config_.kind == PositionKind::learned ? output.elements() : 0};
  }
  std::unique_ptr<Operation> plan(const PlanContext& context) const override {
    if (config_.kind == PositionKind::sinusoidal) return std::make_unique<SinusoidalOperation>(context);
    return std::make_unique<LearnedOperation>(context);
  }

 private:
  PositionsConfig config_;
};

}  // namespace

const LayerType& positions_layer() {
  static const LayerType type{
      .name = "positions",
      .summary = "adds a vector to each position, learned or of sines and cosines",
      .make = make_layer<Positions, PositionsConfig, positions_fields>,
      .fields = table_of<PositionsConfig, positions_fields>,
  };
  return type;
}

}  // namespace gpipe::layers
