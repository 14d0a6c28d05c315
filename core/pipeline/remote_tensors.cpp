#include "core/pipeline/remote_tensors.h"

namespace gpipe::pipeline {

RemoteTensors::RemoteTensors(const Plan& plan, int stage, bool memory) {
  const StagePlan& of = plan.stages[static_cast<size_t>(stage)];
  const auto unknown = [](const Shape& shape) { return TensorView{nullptr, shape, tensor::DType::f32}; };
  std::vector<StateTensor> averages;
  for (int index = of.first_node; index < of.last_node; ++index) {
    const graph::Node& node = plan.network.nodes[static_cast<size_t>(index)];
    for (size_t i = 0; i < node.parameters.size(); ++i) {
      if (plan.network.tie_of(index, static_cast<int>(i)) != nullptr) continue;
      const graph::ParameterSpec& spec = node.parameters[i];
      const std::vector<TensorView> slots(static_cast<size_t>(plan.optimizer_slots), unknown(spec.shape));
      tensors_.push_back({node.name + "." + spec.name, unknown(spec.shape), {}, slots, &spec, index});
    }
    for (const graph::BufferSpec& spec : node.buffers)
      averages.push_back({node.name + "." + spec.name, unknown(spec.shape), {}, {}, nullptr, index});
  }
  parameter_count_ = tensors_.size();
  tensors_.insert(tensors_.end(), std::make_move_iterator(averages.begin()), std::make_move_iterator(averages.end()));
  if (!memory) return;
  const auto each = [&](const auto& f) {
    for (StateTensor& tensor : tensors_) {
      f(tensor.value);
      for (TensorView& slot : tensor.slots) f(slot);
    }
  };
  size_t bytes = 0;
  each([&](const TensorView& view) { bytes += align_up(view.bytes()); });
  memory_.resize(bytes);
  std::byte* next = memory_.data();
  each([&](TensorView& view) {
    view.data = next;
    next += align_up(view.bytes());
  });
}

}  // namespace gpipe::pipeline
