// cross_entropy: torch.nn.functional.cross_entropy of logits [..., classes] and a class a position, averaged over the targets of
// the whole mini-batch that are not -100. The output of a sample is [the sum of its losses, how often the largest logit is the
// target's].
#include "layers/loss.h"

namespace gpipe::layers {
namespace {

struct CrossEntropyConfig {
  double label_smoothing = 0;
};

const base::FieldSet<CrossEntropyConfig>& cross_entropy_fields() {
  static const auto fields = [] {
    base::FieldSet<CrossEntropyConfig> f{"cross_entropy"};
    f.add("label_smoothing", &CrossEntropyConfig::label_smoothing)
        .range(0, 1)
        .help("share of the probability that all classes get alike");
    return f;
  }();
  return fields;
}

class CrossEntropy final : public Layer {
 public:
  explicit CrossEntropy(const CrossEntropyConfig& config) : config_(config) {}

  Shape output_shape(std::span<const Shape> inputs) const override {
    const Shape &logits = inputs[0], &target = inputs[1];
    // A class a sample is [] or [1].
    const Shape positions(logits.rank() == 0 ? logits.extents() : logits.extents().first(static_cast<size_t>(logits.rank() - 1)));
    if (logits.rank() == 0 || !(positions == target || (logits.rank() == 1 && target.elements() == 1)))
      throw base::ConfigError("cross_entropy needs logits [..., classes] and a class for each position, found {} and {}", logits,
                              target);
    return {2};
  }
  DType output_type(std::span<const DType> inputs) const override {
    if (inputs[0] != DType::f32 || inputs[1] != DType::i32)
      throw base::ConfigError("cross_entropy compares numbers with classes, found {} and {}", tensor::name_of(inputs[0]),
                              tensor::name_of(inputs[1]));
    return DType::f32;
  }
  Cost cost(std::span<const Shape> inputs, const Shape&) const override {
    return {12 * inputs[0].elements(), 14 * inputs[0].elements(), 0};
  }
  std::unique_ptr<Operation> plan(const PlanContext& context) const override {
    const int64_t classes = context.inputs[0].back();
    return make_loss_operation(context.backend.cross_entropy(
        {.classes = classes, .positions = context.inputs[0].elements() / classes, .label_smoothing = config_.label_smoothing},
        context.batches));
  }

 private:
  CrossEntropyConfig config_;
};

}  // namespace

const LayerType& cross_entropy_layer() {
  static const LayerType type{
      .name = "cross_entropy",
      .summary = "loss: softmax cross-entropy of logits and a class, or one a position",
      .min_inputs = 2,
      .max_inputs = 2,
      .is_loss = true,
      .make = make_layer<CrossEntropy, CrossEntropyConfig, cross_entropy_fields>,
      .fields = table_of<CrossEntropyConfig, cross_entropy_fields>,
  };
  return type;
}

}  // namespace gpipe::layers
