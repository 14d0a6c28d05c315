#include "core/pipeline/profile.h"

#include "core/base/median.h"

#include <array>
#include <chrono>

namespace gpipe::pipeline {
namespace {

using Clock = std::chrono::steady_clock;

/// Adds up what each node does in each step, and keeps the sums of all steps.
class Timer final : public InstructionObserver {
 public:
  enum What { forward, input, weight, pack, update, k_whats };

  /// Only micro-batch `micro` counts: one of the largest size.
  Timer(size_t nodes, int micro) : micro_(micro) {
    for (auto& list : now_) list.assign(nodes, 0);
    for (auto& list : all_) list.resize(nodes);
  }

  void instruction(int /*stage*/, const Task& task, const Instruction& what, std::span<const TensorView> /*outputs*/,
                   double seconds) override {
    if (task.micro != micro_) return;
    const bool weights = what.kind == Instruction::Kind::backward_weight;
    now_[task.work == Work::forward ? forward : weights ? weight : input][static_cast<size_t>(what.node)] += seconds;
  }
  void upkeep(int /*stage*/, int node, bool packs, double seconds) override {
    now_[packs ? pack : update][static_cast<size_t>(node)] += seconds;
  }

  /// A step has ended: it counts, unless it was there to warm up.
  void end_step(bool counts) {
    for (size_t what = 0; what < k_whats; ++what)
      for (size_t node = 0; node < now_[what].size(); ++node) {
        if (counts) all_[what][node].push_back(now_[what][node]);
        now_[what][node] = 0;
      }
  }
  double median_of(What what, size_t node) { return base::median(all_[what][node]); }

 private:
  int micro_;
  std::array<std::vector<double>, k_whats> now_;
  std::array<std::vector<std::vector<double>>, k_whats> all_;
};

/// Rules of a learning rate of 0, whatever the optimizer: the number of its slots says what it is about.
std::vector<device::Update> still_rules(const Engine& engine) {
  switch (engine.plan().optimizer_slots) {
    case 0: return {engine.parameter_count(), device::SgdUpdate{}};
    case 1: return {engine.parameter_count(), device::MomentumUpdate{}};
    case 2: return {engine.parameter_count(), device::AdamUpdate{}};
    default: {  // the average beside two slots
      device::AdamUpdate update;
      update.common.averaging = 0.5F;
      return {engine.parameter_count(), update};
    }
  }
}

/// What is kept because of the node: its output, if a backward reads it, and what the operation saves.
int64_t kept_bytes(const Plan& plan, size_t index, int64_t samples) {
  const StagePlan& stage = plan.stages.front();
  const graph::Value& value = plan.network.values[static_cast<size_t>(plan.network.nodes[index].output)];
  bool read = stage.operations[index]->needs().output;
  for (const int consumer : value.consumers) read = read || stage.operations[static_cast<size_t>(consumer)]->needs().inputs;
  const auto output = static_cast<int64_t>(static_cast<size_t>(value.shape.elements() * samples) * tensor::size_of(value.dtype));
  return static_cast<int64_t>(stage.operations[index]->saved_bytes(samples)) + (read ? output : 0);
}

}  // namespace

ProfileBatch profile_batch(const MicroBatches& micro_batches) {
  const int64_t largest = micro_batches.sizes.front();
  if (micro_batches.mini_batch >= 2 * largest) return {2 * largest, 2};
  return {largest, 1};
}

std::vector<NodeProfile> measure_nodes(Engine& engine, const MiniBatch& batch, const ProfileLength& length) {
  const Plan& plan = engine.plan();
  GP_CHECK_EQ(plan.stages.size(), 1U);
  const size_t nodes = plan.network.nodes.size();
  Timer timer(nodes, plan.micro_batches.count() - 1);
  const std::vector<device::Update> rules = still_rules(engine);
  engine.set_observer(&timer);
  engine.train(batch, rules, 0);
  timer.end_step(false);
  const auto start = Clock::now();
  double seconds = 0;
  for (int step = 0; step == 0 || (seconds < length.most_seconds && (step < length.repeats || seconds < length.seconds));
       ++step) {
    engine.train(batch, rules, 0);
    timer.end_step(true);
    seconds = std::chrono::duration<double>(Clock::now() - start).count();
  }
  engine.set_observer(nullptr);
  const int64_t samples = plan.micro_batches.sizes.back();
  std::vector<NodeProfile> profile(nodes);
  for (size_t node = 0; node < nodes; ++node) {
    const graph::Value& value = plan.network.values[static_cast<size_t>(plan.network.nodes[node].output)];
    profile[node] = {timer.median_of(Timer::forward, node),
                     timer.median_of(Timer::input, node),
                     timer.median_of(Timer::weight, node),
                     timer.median_of(Timer::pack, node),
                     timer.median_of(Timer::update, node),
                     kept_bytes(plan, node, samples),
                     static_cast<int64_t>(static_cast<size_t>(value.shape.elements() * samples) * tensor::size_of(value.dtype))};
  }
  return profile;
}

}  // namespace gpipe::pipeline
