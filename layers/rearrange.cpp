#include "layers/rearrange.h"

#include <fmt/ranges.h>

namespace gpipe::layers {
namespace {

using device::RearrangeSpec;

RearrangeSpec inverse_of(const RearrangeSpec& spec) {
  RearrangeSpec back{.input = spec.output, .output = spec.input};
  for (int k = 0; k < spec.input.rank(); ++k) {
    const size_t from = static_cast<size_t>(k), to = static_cast<size_t>(spec.axes[from]);
    back.axes[to] = k;
    back.offset[to] = -spec.offset[from];
  }
  return back;
}

class RearrangeOperation final : public Operation {
 public:
  RearrangeOperation(const RearrangeSpec& spec, const PlanContext& context)
      : forward_(context.backend.rearrange(spec)), backward_(context.backend.rearrange(inverse_of(spec))) {}

  Needs needs() const override { return {}; }
  void forward(const ForwardCall& call, const NodeState&) override { forward_->apply(call.inputs[0], call.output); }
  void backward_input(const BackwardCall& call, const NodeState&) override {
    if (call.dx[0]) backward_->apply(call.dy, call.dx[0]);
  }

 private:
  std::unique_ptr<device::RearrangeOp> forward_, backward_;
};

}  // namespace

RearrangeSpec whole_of(const Shape& input) {
  RearrangeSpec spec{.input = input, .output = input};
  for (size_t k = 0; k < spec.axes.size(); ++k) spec.axes[k] = static_cast<int>(k);
  return spec;
}

std::unique_ptr<Operation> plan_rearrange(const RearrangeSpec& spec, const PlanContext& context) {
  return std::make_unique<RearrangeOperation>(spec, context);
}

Margins margins_of(const char* layer, const std::vector<int64_t>& numbers, const Shape& input) {
  if (input.rank() != 2 && input.rank() != 3)
    throw base::ConfigError("{} needs an image [height, width, channels] or a sequence [positions, channels], its input is {}",
                            layer, input);
  const size_t axes = static_cast<size_t>(input.rank() - 1);
  if (numbers.size() != 1 && numbers.size() != 2 * axes)
    throw base::ConfigError("{}: wanted one number or {} for an input of {}, found [{}]", layer,
                            axes == 2 ? "[top, bottom, left, right]" : "[before, after]", input, fmt::join(numbers, ", "));
  Margins margins(axes);
  for (size_t k = 0; k < 2 * axes; ++k) margins[k / 2][k % 2] = numbers[numbers.size() == 1 ? 0 : k];
  return margins;
}

RearrangeSpec with_margins(const char* layer, const Shape& input, const Margins& margins, double fill) {
  RearrangeSpec spec = whole_of(input);
  std::vector<int64_t> extents(input.extents().begin(), input.extents().end());
  for (size_t k = 0; k < margins.size(); ++k) {
    const auto [before, after] = margins[k];
    spec.offset[k] = -before;
    extents[k] += before + after;
    if (extents[k] < 1)
      throw base::ConfigError("{}: nothing would be left of axis {} of {}: {} at its start and {} at its end", layer, k, input,
                              before, after);
  }
  spec.output = Shape(std::span<const int64_t>(extents));
  spec.fill = fill;
  return spec;
}

}  // namespace gpipe::layers
