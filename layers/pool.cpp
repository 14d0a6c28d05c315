#include "layers/pool.h"

namespace gpipe::layers {
namespace {

class PoolOperation final : public Operation {
 public:
  explicit PoolOperation(std::unique_ptr<device::PoolOp> op) : op_(std::move(op)) {}

  Needs needs() const override { return {}; }
  size_t workspace_bytes() const override { return op_->workspace_bytes(); }
  size_t saved_bytes(int64_t samples) const override { return op_->saved_bytes(samples); }
  void forward(const ForwardCall& call, const NodeState&) override {
    op_->forward(call.inputs[0], call.output, call.saved, call.workspace);
  }
  void backward_input(const BackwardCall& call, const NodeState&) override {
    if (call.dx[0]) op_->backward(call.dy, call.saved, call.dx[0], call.workspace);
  }

 private:
  std::unique_ptr<device::PoolOp> op_;
};

}  // namespace

device::PoolSpec pool_spec(device::PoolSpec::Kind kind, const Shape& image, const Window& window, const Placement& at) {
  return {.kind = kind,
          .in_height = image[0],
          .in_width = image[1],
          .channels = image[2],
          .out_height = at.out[0],
          .out_width = at.out[1],
          .kernel = window.kernel,
          .stride = window.stride,
          .pad_top = at.top,
          .pad_bottom = at.bottom,
          .pad_left = at.left,
          .pad_right = at.right};
}

std::unique_ptr<Operation> pool_operation(const device::PoolSpec& spec, const PlanContext& context) {
  return std::make_unique<PoolOperation>(context.backend.pool(spec, context.batches));
}

void check_pool(const char* layer, const Window& window, const Placement& at) {
  if (std::max(at.top, at.bottom) >= window.kernel[0] || std::max(at.left, at.right) >= window.kernel[1])
    throw base::ConfigError("{}: padding [{}, {}, {}, {}] must be less than the kernel {}", layer, at.top, at.bottom, at.left,
                            at.right, Shape{window.kernel[0], window.kernel[1]});
}

}  // namespace gpipe::layers
