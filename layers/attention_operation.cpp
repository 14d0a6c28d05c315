#include "layers/attention_operation.h"

#include <vector>

namespace gpipe::layers {
namespace {

size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }
size_t floats(int64_t count) { return static_cast<size_t>(count) * sizeof(float); }

/// A linear map whose weight is some rows of a parameter, and where its packed copies lie.
struct Projection {
  std::unique_ptr<device::WeightedOp> op;
  int64_t in = 0, out = 0;
  int64_t first_row = 0;  // in the parameter
  size_t weight = 0;      // which parameter: 0 in_proj_weight, 1 out_proj.weight
  size_t packed_at = 0, packed_gradient_at = 0;

  TensorView rows(const TensorView& parameter) const { return {parameter.data + floats(first_row * in), Shape{out, in}}; }
  TensorView part(const TensorView& bias) const {
    return bias ? TensorView{bias.data + floats(first_row), Shape{out}} : TensorView{};
  }
};

/// Where the saved values of a call are. Self-attention: query, key and value of a position side by side, from `query` on.
struct Saved {
  float *query, *pairs;  // pairs: keys and values of cross-attention
  float *context, *logsumexp;
};

class AttentionOperation final : public Operation {
 public:
  AttentionOperation(const AttentionArguments& arguments, const PlanContext& context)
      : arguments_(arguments),
        cross_(arguments.values(context.inputs.size()) == 2),
        queries_(context.inputs[0][0]),
        keys_(context.inputs[cross_ ? 1 : 0][0]),
        width_(arguments.width()) {
    for (size_t i = 0; i < (cross_ ? 2U : 1U); ++i) any_gradient_ = any_gradient_ || context.input_gradients[i];
    const int64_t channels = context.inputs[0][1];
    add(context, channels, cross_ ? width_ : 3 * width_, 0, 0, 0, context.input_gradients[0]);
    if (cross_) add(context, channels, 2 * width_, width_, 0, 1, context.input_gradients[1]);
    add(context, width_, channels, 0, 1, 0, true);
    core_ = context.backend.attention({.heads = arguments.heads,
                                       .head_dim = arguments.head_dim,
                                       .queries = queries_,
                                       .keys = keys_,
                                       .causal = arguments.causal,
                                       .dropout = arguments.dropout,
                                       .padding = arguments.padding},
                                      context.batches);
    for (const Projection& projection : projections_)
      shared_workspace_ = std::max(shared_workspace_, projection.op->workspace_bytes());
    shared_workspace_ = std::max(shared_workspace_, core_->workspace_bytes());
    most_samples_ = context.batches.front();
  }

  Needs needs() const override { return {.inputs = true}; }
  size_t workspace_bytes() const override { return dcontext_bytes(most_samples_) + shared_workspace_; }
  size_t saved_bytes(int64_t samples) const override {
    return projected_bytes(samples) + dcontext_bytes(samples) + aligned(floats(samples * arguments_.heads * queries_));
  }
  size_t packed_weight_bytes() const override { return packed_; }
  size_t packed_gradient_bytes() const override { return packed_gradient_; }
  bool packs_as_widest() const override { return true; }
  /// Without a gradient to give, backward_input makes what the parameters' gradients need and is not called by itself.
  bool has_backward_weight() const override { return any_gradient_; }

  void pack(const NodeState& state, std::byte* workspace) override {
    for (const Projection& p : projections_)
      p.op->pack_weight(p.rows(state.parameters[weight_index(p)]), packed(p, state), workspace);
  }
  void finish_gradients(const NodeState& state, std::byte* workspace) override {
    for (const Projection& p : projections_)
      if (p.op->packed_gradient_bytes() > 0)
        p.op->unpack_gradient(state.packed_gradient + p.packed_gradient_at, p.rows(state.gradients[weight_index(p)]), workspace);
  }

  void forward(const ForwardCall& call, const NodeState& state) override {
    const int64_t samples = call.pass.samples;
    const Saved saved = saved_of(call.saved, samples);
    apply(projections_[0], state, call.inputs[0], saved.query, call.workspace);
    if (cross_) apply(projections_[1], state, call.inputs[1], saved.pairs, call.workspace);
    const device::DropoutKey key = key_of(call.pass);
    core_->forward(inputs_of(saved, call.inputs, call.pass, key), context_of(saved, samples), logsumexp_of(saved, samples),
                   call.workspace);
    apply(projections_.back(), state, context_of(saved, samples), call.output.f32(), call.workspace);
  }

  void backward_input(const BackwardCall& call, const NodeState& state) override {
    const int64_t samples = call.pass.samples;
    const Saved saved = saved_of(call.saved, samples);
    std::byte* workspace = call.workspace + dcontext_bytes(most_samples_);
    const TensorView dcontext{call.workspace, Shape{samples, queries_, width_}};
    apply_back(projections_.back(), state, call.dy, dcontext, workspace);
    const device::DropoutKey key = key_of(call.pass);
    core_->backward(inputs_of(saved, call.inputs, call.pass, key), context_of(saved, samples), logsumexp_of(saved, samples),
                    dcontext, workspace);
    if (call.dx[0])
      apply_back(projections_[0], state, output_of(projections_[0], saved.query, samples * queries_), call.dx[0], workspace);
    if (cross_ && call.dx[1])
      apply_back(projections_[1], state, output_of(projections_[1], saved.pairs, samples * keys_), call.dx[1], workspace);
    if (!any_gradient_) add_weight_gradients(call, state, workspace);
  }
  void backward_weight(const BackwardCall& call, const NodeState& state) override {
    add_weight_gradients(call, state, call.workspace);
  }

 private:
  void add(const PlanContext& context, int64_t in, int64_t out, int64_t first_row, size_t parameter, size_t input,
           bool input_gradient) {
    Projection p{nullptr, in, out, first_row, parameter, packed_, packed_gradient_};
    p.op = context.backend.linear({in, out, arguments_.bias, input_gradient}, rows_of(context, input));
    packed_ += aligned(p.op->packed_weight_bytes());
    packed_gradient_ += aligned(p.op->packed_gradient_bytes());
    projections_.push_back(std::move(p));
  }

  // Parameters: in_proj_weight, [in_proj_bias,] out_proj.weight, [out_proj.bias].
  size_t weight_index(const Projection& p) const { return p.weight * (arguments_.bias ? 2 : 1); }
  TensorView bias_of(const Projection& p, std::span<const TensorView> all) const {
    return arguments_.bias ? p.part(all[weight_index(p) + 1]) : TensorView{};
  }
  static std::byte* packed(const Projection& p, const NodeState& state) {
    return state.packed_weight == nullptr ? nullptr : state.packed_weight + p.packed_at;
  }
  device::Weight weight_of(const Projection& p, const NodeState& state) const {
    return {p.rows(state.parameters[weight_index(p)]), packed(p, state)};
  }
  static TensorView output_of(const Projection& p, float* block, int64_t rows) {
    return {reinterpret_cast<std::byte*>(block), Shape{rows, p.out}};
  }

  size_t projected_bytes(int64_t samples) const { return aligned(floats(samples * (queries_ + 2 * keys_) * width_)); }
  size_t dcontext_bytes(int64_t samples) const { return aligned(floats(samples * queries_ * width_)); }
  Saved saved_of(std::byte* saved, int64_t samples) const {
    const auto at = [&](size_t offset) { return reinterpret_cast<float*>(saved + offset); };
    return {at(0), at(floats(samples * queries_ * width_)), at(projected_bytes(samples)),
            at(projected_bytes(samples) + dcontext_bytes(samples))};
  }
  TensorView context_of(const Saved& saved, int64_t samples) const {
    return {reinterpret_cast<std::byte*>(saved.context), Shape{samples, queries_, width_}};
  }
  TensorView logsumexp_of(const Saved& saved, int64_t samples) const {
    return {reinterpret_cast<std::byte*>(saved.logsumexp), Shape{samples, arguments_.heads, queries_}};
  }
  device::DropoutKey key_of(const graph::Pass& pass) const { return {pass.seed, pass.step, pass.node, pass.first_sample}; }
  device::AttentionInputs inputs_of(const Saved& saved, std::span<const TensorView> inputs, const graph::Pass& pass,
                                    const device::DropoutKey& key) const {
    const int64_t stride = cross_ ? width_ : 3 * width_, pair_stride = cross_ ? 2 * width_ : 3 * width_;
    float* keys = cross_ ? saved.pairs : saved.query + width_;
    return {{saved.query, stride},
            {keys, pair_stride},
            {keys + width_, pair_stride},
            arguments_.padding >= 0 ? inputs.back() : TensorView{},
            pass.training && arguments_.dropout > 0 ? &key : nullptr};
  }

  void apply(const Projection& p, const NodeState& state, const TensorView& x, float* to, std::byte* workspace) {
    const TensorView rows = as_rows(x);
    p.op->forward(rows, weight_of(p, state), bias_of(p, state.parameters), output_of(p, to, rows.shape[0]), workspace);
  }
  void apply_back(const Projection& p, const NodeState& state, const TensorView& dy, const TensorView& dx, std::byte* workspace) {
    p.op->backward_input(as_rows(dy), weight_of(p, state), as_rows(dx), workspace);
  }
  void weight_gradient(const Projection& p, const NodeState& state, const TensorView& x, const TensorView& dy, bool accumulate,
                       std::byte* workspace) {
    std::byte* packed = state.packed_gradient == nullptr ? nullptr : state.packed_gradient + p.packed_gradient_at;
    p.op->backward_weight(as_rows(x), as_rows(dy), {p.rows(state.gradients[weight_index(p)]), packed},
                          bias_of(p, state.gradients), accumulate, workspace);
  }
  /// The saved projections have become their gradients.
  void add_weight_gradients(const BackwardCall& call, const NodeState& state, std::byte* workspace) {
    const int64_t samples = call.pass.samples;
    const Saved saved = saved_of(call.saved, samples);
    const bool accumulate = call.pass.micro > 0;
    const Projection& first = projections_[0];
    weight_gradient(first, state, call.inputs[0], output_of(first, saved.query, samples * queries_), accumulate, workspace);
    if (cross_)
      weight_gradient(projections_[1], state, call.inputs[1], output_of(projections_[1], saved.pairs, samples * keys_),
                      accumulate, workspace);
    weight_gradient(projections_.back(), state, context_of(saved, samples), call.dy, accumulate, workspace);
  }

  AttentionArguments arguments_;
  bool cross_;
  int64_t queries_, keys_;
  int64_t width_;  // of all heads
  bool any_gradient_ = false;
  std::vector<Projection> projections_;  // query (and key and value), [key and value of memory,] out
  std::unique_ptr<device::AttentionOp> core_;
  size_t packed_ = 0, packed_gradient_ = 0, shared_workspace_ = 0;
  int64_t most_samples_ = 0;
};

}  // namespace

std::unique_ptr<Operation> plan_attention(const AttentionArguments& arguments, const PlanContext& context) {
  return std::make_unique<AttentionOperation>(arguments, context);
}

}  // namespace gpipe::layers
