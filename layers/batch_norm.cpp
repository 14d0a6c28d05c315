// batch_norm: torch.nn.BatchNorm over the last axis. Training uses the statistics of the micro-batch (GPipe's rule); the
// running averages move once a mini-batch, by all its micro-batches, and never by a recompute.
#include "layers/norm_start.h"
#include "layers/support.h"

namespace gpipe::layers {
namespace {

struct BatchNormConfig : NormStart {
  double eps = 1e-5, momentum = 0.1;
  bool affine = true;
};

const base::FieldSet<BatchNormConfig>& batch_norm_fields() {
  static const auto fields = [] {
    base::FieldSet<BatchNormConfig> f{"batch_norm"};
    f.add("eps", &BatchNormConfig::eps).at_least(0, true).help("added to the variance");
    f.add("momentum", &BatchNormConfig::momentum).range(0, 1).help("share of a mini-batch in the running averages");
    f.add("affine", &BatchNormConfig::affine).help("learn a scale and a shift for every channel");
    add_norm_start(f);
    return f;
  }();
  return fields;
}

class BatchNormOperation final : public Operation {
 public:
  BatchNormOperation(const BatchNormConfig& config, const PlanContext& context)
      : momentum_(config.momentum),
        channels_(context.inputs[0].back()),
        positions_(context.inputs[0].elements() / channels_),
        input_gradient_(context.input_gradients[0]),
        op_(context.backend.batch_norm({context.inputs[0], config.eps, config.affine}, context.batches)) {}

  Needs needs() const override { return {.inputs = true, .gradient_in_place = true}; }
  size_t workspace_bytes() const override { return op_->workspace_bytes(); }
  size_t saved_bytes(int64_t) const override { return 2 * sizeof(float) * static_cast<size_t>(channels_); }
  size_t batch_state_bytes() const override { return op_->state_bytes(); }
  // One pass gives all three gradients; it belongs to backward_input unless nobody asks for that one.
  bool has_backward_weight() const override { return !input_gradient_; }

  void forward(const ForwardCall& call, const NodeState& state) override {
    const TensorView scale = parameter(state.parameters, 0), shift = parameter(state.parameters, 1);
    if (!call.pass.training) {
      op_->forward_eval(call.inputs[0], scale, shift, state.buffers[0], state.buffers[1], call.output, call.workspace);
      return;
    }
    const auto [mean, variance] = statistics(call.saved);
    op_->forward_train(call.inputs[0], scale, shift, call.output, mean, variance, call.workspace);
    if (!call.pass.recompute)
      op_->gather(mean, variance, call.inputs[0].shape[0] * positions_, call.pass.micro == 0, state.batch_state);
  }
  void backward_input(const BackwardCall& call, const NodeState& state) override {
    if (input_gradient_) backward(call, state, call.dx[0]);
  }
  void backward_weight(const BackwardCall& call, const NodeState& state) override {
    if (!input_gradient_) backward(call, state, {});
  }
  void finish_mini_batch(const NodeState& state) override {
    op_->update_running(state.batch_state, momentum_, state.buffers[0], state.buffers[1]);
  }

 private:
  struct Statistics {
    TensorView mean, variance;
  };
  Statistics statistics(std::byte* saved) const {
    const Shape shape{channels_};
    return {{saved, shape, DType::f32}, {saved + sizeof(float) * static_cast<size_t>(channels_), shape, DType::f32}};
  }
  void backward(const BackwardCall& call, const NodeState& state, const TensorView& dx) {
    const auto [mean, variance] = statistics(const_cast<std::byte*>(call.saved));  // only read
    op_->backward(call.inputs[0], call.dy, parameter(state.parameters, 0), mean, variance, dx, parameter(state.gradients, 0),
                  parameter(state.gradients, 1), call.pass.micro > 0, call.workspace);
  }

  double momentum_;
  int64_t channels_, positions_;
  bool input_gradient_;
  std::unique_ptr<device::BatchNormOp> op_;
};

class BatchNorm final : public Layer {
 public:
  explicit BatchNorm(const BatchNormConfig& config) : config_(config) {}

  Shape output_shape(std::span<const Shape> inputs) const override {
    if (inputs[0].rank() < 1) throw base::ConfigError("batch_norm needs a last axis of channels, its input is {}", inputs[0]);
    return inputs[0];
  }
  std::vector<graph::ParameterSpec> parameters(std::span<const Shape> inputs) const override {
    if (!config_.affine) return {};
    const Shape shape{inputs[0].back()};
    return {{"weight", shape, config_.scale(), false}, {"bias", shape, config_.shift(), false}};
  }
  std::vector<graph::BufferSpec> buffers(std::span<const Shape> inputs) const override {
    const Shape shape{inputs[0].back()};
    return {{"running_mean", shape, 0}, {"running_var", shape, 1}};
  }
  Cost cost(std::span<const Shape>, const Shape& output) const override {
    return {7 * output.elements(), 9 * output.elements(), 0};
  }
  std::unique_ptr<Operation> plan(const PlanContext& context) const override {
    return std::make_unique<BatchNormOperation>(config_, context);
  }

 private:
  BatchNormConfig config_;
};

}  // namespace

const LayerType& batch_norm_layer() {
  static const LayerType type{
      .name = "batch_norm",
      .summary = "normalises every channel by the statistics of the micro-batch",
      .make = make_layer<BatchNorm, BatchNormConfig, batch_norm_fields>,
      .fields = table_of<BatchNormConfig, batch_norm_fields>,
  };
  return type;
}

}  // namespace gpipe::layers
