// Linear on oneDNN's matmul, which keeps its speed down to a handful of rows (inner_product and sgemm lose half of theirs
// in one direction or the other): y = x W^T + b and dx = dy W read packed copies of W, dW = dy^T x + dW adds while it
// stores, straight into the plain gradient. With factors of fewer bits, x and dy are rounded before each product,
// W when it is packed.
#include "core/device/cpu/columns.h"
#include "core/device/cpu/narrowed.h"
#include "core/device/cpu/ops.h"
#include "core/device/cpu/tiles.h"

namespace gpipe::device::cpu {
namespace {

class OnednnLinear final : public WeightedOp {
 public:
  OnednnLinear(const LinearSpec& spec, const Batches& batches, const Team& team) : spec_(spec), team_(team) {
    const int64_t in = spec.in_features, out = spec.out_features;
    plain_forward_ = describe({in, out}, Tag::ba);   // W^T
    plain_backward_ = describe({out, in}, Tag::ab);  // W
    for (int64_t batch : batches) plan(batch);
    plan_copies();
  }

  size_t workspace_bytes() const override { return workspace_; }
  std::string implementation() const override { return implementation_; }
  size_t packed_weight_bytes() const override { return packed_; }
  size_t packed_gradient_bytes() const override { return 0; }

  void pack_weight(const TensorView& weight, std::byte* packed, std::byte* workspace) override {
    const std::byte* factor = rounded_weight_.read(weight.data, workspace);
    workspace += rounded_weight_.bytes();
    const float* values = reinterpret_cast<const float*>(factor);
    if (forward_tiles_)
      fill_tiles_transposed(team_.threads, *forward_tiles_, values, packed);
    else if (to_forward_)
      to_forward_.run(team_.stream, {factor, packed}, workspace);
    std::byte* backward = packed + backward_offset_;
    if (backward_tiles_)
      fill_tiles(team_.threads, *backward_tiles_, values, backward);
    else if (to_backward_)
      to_backward_.run(team_.stream, {factor, backward}, workspace);
  }
  void unpack_gradient(const std::byte*, const TensorView&, std::byte*) override {}

  void forward(const TensorView& x, const Weight& w, const TensorView& bias, const TensorView& y, std::byte* workspace) override {
    const std::byte* weight = to_forward_ ? w.packed : w.plain.data;
    Plan& plan = of(x);
    const std::byte* factor = plan.x.read(x.data, workspace);
    if (spec_.bias)
      plan.forward.run(team_.stream, {factor, weight, y.data, bias.data}, workspace + narrowed_);
    else
      plan.forward.run(team_.stream, {factor, weight, y.data}, workspace + narrowed_);
  }

  void backward_input(const TensorView& dy, const Weight& w, const TensorView& dx, std::byte* workspace) override {
    const std::byte* weight = to_backward_ ? w.packed + backward_offset_ : w.plain.data;
    Plan& plan = of(dy);
    plan.backward_input.run(team_.stream, {plan.dy.read(dy.data, workspace), weight, dx.data}, workspace + narrowed_);
  }

  void backward_weight(const TensorView& x, const TensorView& dy, const WeightGradient& dw, const TensorView& dbias,
                       bool accumulate, std::byte* workspace) override {
    Plan& plan = of(x);
    Kernel& kernel = accumulate ? plan.add_weight : plan.write_weight;
    const std::byte* from_x = plan.x.read(x.data, workspace);
    const std::byte* from_dy = plan.dy.read(dy.data, workspace + plan.x.bytes());
    kernel.run(team_.stream, {from_dy, from_x, dw.plain.data}, workspace + narrowed_);
    if (spec_.bias) sum_columns(team_.threads, dy.f32(), x.shape[0], spec_.out_features, dbias.f32(), accumulate);
  }

 private:
  struct Plan {
    int64_t batch;
    Kernel forward, backward_input, write_weight, add_weight;
    Narrowed x, dy;
  };

  void plan(int64_t batch) {
    const bool first = plans_.empty();
    const int64_t in = spec_.in_features, out = spec_.out_features;
    const Type type = team_.factors();
    const Description plain_x = describe({batch, in}, Tag::ab), plain_y = describe({batch, out}, Tag::ab);
    const Description x = describe({batch, in}, Tag::ab, type), dy = describe({batch, out}, Tag::ab, type);
    const Description bias = spec_.bias ? describe({1, out}, Tag::ab) : Description();
    Plan plan{batch, {}, {}, {}, {}, {plain_x, x, team_}, {plain_y, dy, team_}};

    const auto forward =
        describe_matmul(x, first ? describe({in, out}, Tag::any, type) : forward_, bias, plain_y, attributes(), team_.engine);
    if (first) forward_ = forward.weights_desc();
    implementation_ += std::string(forward.impl_info_str()) + " ";
    if (spec_.bias)
      plan.forward =
          Kernel::plan(forward, dnnl::matmul(forward), team_.engine,
                       {{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, forward_}, {DNNL_ARG_DST, plain_y}, {DNNL_ARG_BIAS, bias}});
    else
      plan.forward = Kernel::plan(forward, dnnl::matmul(forward), team_.engine,
                                  {{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, forward_}, {DNNL_ARG_DST, plain_y}});

    if (spec_.input_gradient) {
      const auto input =
          describe_matmul(dy, first ? describe({out, in}, Tag::any, type) : backward_, {}, plain_x, attributes(), team_.engine);
      if (first) backward_ = input.weights_desc();
      implementation_ += std::string(input.impl_info_str()) + " ";
      plan.backward_input = Kernel::plan(input, dnnl::matmul(input), team_.engine,
                                         {{DNNL_ARG_SRC, dy}, {DNNL_ARG_WEIGHTS, backward_}, {DNNL_ARG_DST, plain_x}});
    }

    const Description transposed = describe({out, batch}, Tag::ba, type), gradient = describe({out, in}, Tag::ab);
    dnnl::post_ops sum;
    sum.append_sum(1.0F);
    dnnl::primitive_attr adding = attributes();
    adding.set_post_ops(sum);
    const std::initializer_list<Kernel::Argument> arguments = {
        {DNNL_ARG_SRC, transposed}, {DNNL_ARG_WEIGHTS, x}, {DNNL_ARG_DST, gradient}};
    const auto write = describe_matmul(transposed, x, {}, gradient, attributes(), team_.engine);
    plan.write_weight = Kernel::plan(write, dnnl::matmul(write), team_.engine, arguments);
    const auto add = describe_matmul(transposed, x, {}, gradient, adding, team_.engine);
    implementation_ += std::string(write.impl_info_str()) + " " + add.impl_info_str() + " ";
    plan.add_weight = Kernel::plan(add, dnnl::matmul(add), team_.engine, arguments);
    plans_.push_back(std::move(plan));
  }

  void plan_copies() {
    rounded_weight_ = {plain_backward_, plain_backward_, team_};
    const auto is_packed = [&](const Description& wanted, const Description& plain) {
      return team_.rounds_values() || !(wanted == plain);
    };
    if (is_packed(forward_, plain_forward_)) {
      to_forward_ = plan_reorder(plain_forward_, forward_, team_.engine);
      forward_tiles_ = tiles_of(forward_);
      packed_ = bytes_of(forward_);
    }
    if (spec_.input_gradient && is_packed(backward_, plain_backward_)) {
      to_backward_ = plan_reorder(plain_backward_, backward_, team_.engine);
      backward_tiles_ = tiles_of(backward_);
      backward_offset_ = packed_;
      packed_ += bytes_of(backward_);
    }
    workspace_ = rounded_weight_.bytes() + std::max(to_forward_.scratchpad_bytes(), to_backward_.scratchpad_bytes());
    for (const Plan& plan : plans_) narrowed_ = std::max(narrowed_, plan.x.bytes() + plan.dy.bytes());
    for (const Plan& plan : plans_)
      for (const Kernel* kernel : {&plan.forward, &plan.backward_input, &plan.write_weight, &plan.add_weight})
        workspace_ = std::max(workspace_, narrowed_ + kernel->scratchpad_bytes());
  }

  Plan& of(const TensorView& view) {
    for (Plan& plan : plans_)
      if (plan.batch == view.shape[0]) return plan;
    throw base::BugError("linear: {} rows were not planned", view.shape[0]);
  }

  LinearSpec spec_;
  const Team& team_;
  Description plain_forward_, plain_backward_;
  Description forward_, backward_;
  std::vector<Plan> plans_;
  Narrowed rounded_weight_;
  Kernel to_forward_, to_backward_;
  std::optional<Tiles> forward_tiles_, backward_tiles_;
  size_t packed_ = 0, backward_offset_ = 0, narrowed_ = 0, workspace_ = 0;
  std::string implementation_;
};

}  // namespace

std::unique_ptr<WeightedOp> make_linear(const LinearSpec& spec, const Batches& batches, const Team& team) {
  try {
    return std::make_unique<OnednnLinear>(spec, batches, team);
  } catch (const dnnl::error& error) {
    throw base::ConfigError("oneDNN cannot do this linear map: {} to {} features: {}", spec.in_features, spec.out_features,
                            error.what());
  }
}

}  // namespace gpipe::device::cpu
