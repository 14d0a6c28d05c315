// What pad, crop, slice and transpose share: each is one copy of the device, undone in backward by another one.
#pragma once

#include "layers/support.h"

#include <array>
#include <vector>

namespace gpipe::layers {

/// Every axis as it is: where each of the four starts from.
device::RearrangeSpec whole_of(const Shape& input);
std::unique_ptr<Operation> plan_rearrange(const device::RearrangeSpec& spec, const PlanContext& context);

/// A layer that is one such copy: `spec_of` says which, and throws ConfigError for an input that it cannot be done with.
template <class Config, device::RearrangeSpec (*spec_of)(const Config&, const Shape&)>
class RearrangeLayer final : public Layer {
 public:
  explicit RearrangeLayer(const Config& config) : config_(config) {}

  Shape output_shape(std::span<const Shape> inputs) const override { return spec_of(config_, inputs[0]).output; }
  Cost cost(std::span<const Shape>, const Shape&) const override { return {}; }
  std::unique_ptr<Operation> plan(const PlanContext& context) const override {
    return plan_rearrange(spec_of(config_, context.inputs[0]), context);
  }

 private:
  Config config_;
};

/// What to add at the ends of every axis of positions, or with a minus to take off: [before, after] of each.
using Margins = std::vector<std::array<int64_t, 2>>;

/// One number for all ends; [top, bottom, left, right] for an image [H, W, C], [before, after] for a sequence [T, C]. Throws
/// ConfigError for another count, or an input that is neither.
Margins margins_of(const char* layer, const std::vector<int64_t>& numbers, const Shape& input);
/// The input with margins of `fill`. Throws ConfigError where nothing would be left.
device::RearrangeSpec with_margins(const char* layer, const Shape& input, const Margins& margins, double fill);

}  // namespace gpipe::layers
