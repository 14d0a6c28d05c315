#include "core/pipeline/profile.h"

#include <algorithm>

namespace gpipe::pipeline {
namespace {

double median(std::vector<double>& values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Collects by node; copies and sums count for the node that they belong to.
class Timer final : public InstructionObserver {
 public:
  explicit Timer(size_t nodes) : forward(nodes), input(nodes), weight(nodes) {}
  void instruction(int /*stage*/, const Task& task, const Instruction& what, std::span<const TensorView> /*outputs*/,
                   double seconds) override {
    const auto node = static_cast<size_t>(what.node);
    const bool ahead = task.work == Work::forward || task.work == Work::recompute;
    auto& samples = ahead ? forward : what.kind == Instruction::Kind::backward_weight ? weight : input;
    if (what.kind == Instruction::Kind::add || what.kind == Instruction::Kind::copy) {
      if (!samples[node].empty()) samples[node].back() += seconds;
      return;
    }
    samples[node].push_back(seconds);
  }
  void clear() {
    for (auto* lists : {&forward, &input, &weight})
      for (auto& list : *lists) list.clear();
  }
  std::vector<std::vector<double>> forward, input, weight;
};

}  // namespace

std::vector<NodeProfile> measure_nodes(Engine& engine, const MiniBatch& batch, int repeats) {
  GP_CHECK_EQ(engine.plan().stages.size(), 1U);
  const size_t nodes = engine.plan().network.nodes.size();
  Timer timer(nodes);
  // A learning rate of 0 whatever the optimizer: slots exist in any number, so the plainest rule cannot be used.
  std::vector<device::Update> rules;
  switch (engine.plan().optimizer_slots) {
    case 0: rules.assign(engine.parameter_count(), device::SgdUpdate{}); break;
    case 1: rules.assign(engine.parameter_count(), device::MomentumUpdate{}); break;
    default: rules.assign(engine.parameter_count(), device::AdamUpdate{}); break;
  }
  engine.set_observer(&timer);
  engine.train(batch, rules, 0);
  timer.clear();
  for (int i = 0; i < repeats; ++i) engine.train(batch, rules, 0);
  engine.set_observer(nullptr);
  std::vector<NodeProfile> profile(nodes);
  for (size_t node = 0; node < nodes; ++node)
    profile[node] = {median(timer.forward[node]), median(timer.input[node]), median(timer.weight[node])};
  return profile;
}

}  // namespace gpipe::pipeline
