#include "core/pipeline/recompute.h"

#include <algorithm>
#include <numeric>

namespace gpipe::pipeline {
namespace {

/// A node whose results may be kept.
struct Item {
  int stage = 0, node = 0;  // node: of the network
  double seconds = 0;       // at most saved by keeping it
  double bytes = 0;         // at least taken by keeping it
  double density() const { return seconds / (bytes + 1); }
};

/// Of the stage: what backward reads of each node, as compile.cpp sees it.
class StageItems {
 public:
  StageItems(const Plan& plan, const std::vector<NodeProfile>& costs, int stage)
      : plan_(plan), costs_(costs), stage_(stage), of_(plan.stages[static_cast<size_t>(stage)]) {
    needed_.assign(plan.network.values.size(), false);
    for (int node = of_.first_node; node < of_.last_node; ++node) {
      const graph::Node& n = plan.network.nodes[static_cast<size_t>(node)];
      if (!plan.network.values[static_cast<size_t>(n.output)].wants_gradient) continue;
      const graph::Needs needs = operation(node).needs();
      if (needs.output) needed_[static_cast<size_t>(n.output)] = true;
      if (needs.inputs)
        for (const int value : n.inputs) needed_[static_cast<size_t>(value)] = true;
    }
  }

  void append(std::vector<Item>& items) const {
    const int live = most_live(plan_.schedule, stage_, Work::forward, Work::backward_weight);
    for (int node = of_.first_node; node < of_.last_node; ++node) {
      if (node == plan_.network.loss_node()) continue;
      items.push_back({stage_, node, seconds(node), kept_bytes(node) * live});
    }
  }

 private:
  graph::Operation& operation(int node) const { return *of_.operations[static_cast<size_t>(node - of_.first_node)]; }

  /// Its own forward, and that of the nodes before it which are run again for its sake alone.
  double seconds(int node) const {
    double sum = costs_[static_cast<size_t>(node)].forward;
    for (const int value : plan_.network.nodes[static_cast<size_t>(node)].inputs) {
      const int producer = plan_.network.values[static_cast<size_t>(value)].producer;
      if (producer >= of_.first_node && !needed_[static_cast<size_t>(value)]) sum += seconds(producer);
    }
    return sum;
  }
  double kept_bytes(int node) const {
    const graph::Value& value = plan_.network.values[static_cast<size_t>(plan_.network.nodes[static_cast<size_t>(node)].output)];
    const int64_t batch = plan_.micro_batches.sizes.front();
    const auto output = static_cast<size_t>(value.shape.with_batch(batch).elements()) * tensor::size_of(value.dtype);
    return static_cast<double>(align_up(output) + align_up(operation(node).saved_bytes(batch)));
  }

  const Plan& plan_;
  const std::vector<NodeProfile>& costs_;
  int stage_;
  const StagePlan& of_;
  std::vector<bool> needed_;
};

/// The stages of one device and what of them is kept.
class DeviceChoice {
 public:
  DeviceChoice(const Plan& plan, int device, KeepChoice& choice,
               const std::function<size_t(int, const std::vector<bool>&)>& bytes)
      : plan_(plan), device_(device), choice_(choice), bytes_(bytes) {}

  size_t total() const {
    size_t sum = 0;
    for (size_t stage = 0; stage < plan_.stages.size(); ++stage)
      if (plan_.schedule.device_of[stage] == device_) sum += bytes_(static_cast<int>(stage), choice_.keep[stage]);
    return sum;
  }
  void set(const Item& item, bool keep) {
    const int first = plan_.stages[static_cast<size_t>(item.stage)].first_node;
    choice_.keep[static_cast<size_t>(item.stage)][static_cast<size_t>(item.node - first)] = keep;
  }

 private:
  const Plan& plan_;
  int device_;
  KeepChoice& choice_;
  const std::function<size_t(int, const std::vector<bool>&)>& bytes_;
};

/// The longest run of items, dearest first, that fits; then each further one that still does.
void fill(DeviceChoice& device, const std::vector<Item>& items, size_t limit) {
  constexpr size_t k_tries = 64;  // of single items, each of which plans the device's stages anew
  size_t fits = 0;
  size_t too_many = items.size() + 1;
  size_t set = 0;
  while (too_many - fits > 1) {
    const size_t count = fits == 0 && too_many > items.size() ? items.size() : (fits + too_many) / 2;
    for (; set < count; ++set) device.set(items[set], true);
    for (; set > count; --set) device.set(items[set - 1], false);
    (device.total() <= limit ? fits : too_many) = count;
  }
  for (; set < fits; ++set) device.set(items[set], true);
  for (; set > fits; --set) device.set(items[set - 1], false);
  for (size_t i = fits; i < std::min(items.size(), fits + k_tries); ++i) {
    device.set(items[i], true);
    if (device.total() > limit) device.set(items[i], false);
  }
}

double fractional_bound(const std::vector<Item>& items, double room) {
  double sum = 0;
  for (const Item& item : items) {
    const double part = item.bytes <= room ? 1.0 : room / item.bytes;
    sum += part * item.seconds;
    room -= part * item.bytes;
    if (part < 1) break;
  }
  return sum;
}

}  // namespace

bool recomputes(Rematerialize policy, int micro) {
  return policy != Rematerialize::none && (policy != Rematerialize::keep_first || micro > 0);
}

KeepChoice choose_kept(const Plan& plan, const std::vector<NodeProfile>& costs, int64_t limit,
                       const std::function<size_t(int stage, const std::vector<bool>& keep)>& bytes) {
  KeepChoice choice;
  for (const StagePlan& stage : plan.stages)
    choice.keep.emplace_back(static_cast<size_t>(stage.last_node - stage.first_node), false);
  for (int device = 0; device < plan.schedule.devices; ++device) {
    std::vector<Item> items;
    double fixed = 0;
    for (int stage = 0; stage < static_cast<int>(plan.stages.size()); ++stage) {
      if (plan.schedule.device_of[static_cast<size_t>(stage)] != device) continue;
      StageItems(plan, costs, stage).append(items);
      const StageMemory& memory = plan.stages[static_cast<size_t>(stage)].memory;
      fixed += static_cast<double>(memory.total() - memory.activations - memory.working);
    }
    std::stable_sort(items.begin(), items.end(), [](const Item& a, const Item& b) { return a.density() > b.density(); });
    DeviceChoice on_device(plan, device, choice, bytes);
    if (on_device.total() > static_cast<size_t>(limit)) continue;
    fill(on_device, items, static_cast<size_t>(limit));
    choice.bound += fractional_bound(items, static_cast<double>(limit) - fixed);
  }
  return choice;
}

}  // namespace gpipe::pipeline
