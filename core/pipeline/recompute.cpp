#include "core/pipeline/recompute.h"

#include <algorithm>
#include <limits>
#include <map>

namespace gpipe::pipeline {
namespace {

/// Nodes whose results may be kept, together: one that backward or several others read, and those that are run for it alone.
struct Item {
  int stage = 0;
  std::vector<int> nodes;  // of the network
  double seconds = 0;      // saved by keeping it
  double bytes = 0;        // at least taken by keeping it, in all live micro-batches
  double again_bytes = 0;  // at least taken by making it again, in one
  double density() const { return seconds / (bytes + 1); }
};

/// Of a stage: what backward reads of each node, as compile.cpp sees it.
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
    std::map<int, Item> by_leader;
    for (int node = of_.first_node; node < of_.last_node; ++node) {
      if (plan_.network.nodes[static_cast<size_t>(node)].is_loss) continue;
      const int leader = leader_of(node);
      Item& item = by_leader[leader];
      item.stage = stage_;
      item.nodes.push_back(node);
      item.seconds += costs_[static_cast<size_t>(node)].forward;
      const auto saved = static_cast<double>(align_up(operation(node).saved_bytes(plan_.micro_batches.sizes.front())));
      item.bytes += live * saved;
      item.again_bytes += saved;
      if (node != leader) continue;
      const graph::Value& value = output(node);
      const bool sent = std::any_of(value.consumers.begin(), value.consumers.end(),
                                    [&](int user) { return user >= of_.last_node; });  // then it lies with the receiver
      if (!sent) item.bytes += live * output_bytes(node);
      if (needed(node)) item.again_bytes += output_bytes(node);
    }
    for (auto& [leader, item] : by_leader) items.push_back(std::move(item));
  }

 private:
  graph::Operation& operation(int node) const { return *of_.operations[static_cast<size_t>(node - of_.first_node)]; }
  const graph::Value& output(int node) const {
    return plan_.network.values[static_cast<size_t>(plan_.network.nodes[static_cast<size_t>(node)].output)];
  }
  bool needed(int node) const { return needed_[static_cast<size_t>(plan_.network.nodes[static_cast<size_t>(node)].output)]; }
  double output_bytes(int node) const {
    const graph::Value& value = output(node);
    const auto elements = static_cast<size_t>(value.shape.with_batch(plan_.micro_batches.sizes.front()).elements());
    return static_cast<double>(align_up(elements * tensor::size_of(value.dtype)));
  }
  /// The node for whose sake alone this one is run again: itself, if its output is read by backward, another stage or several.
  int leader_of(int node) const {
    const graph::Value& value = output(node);
    if (needed(node) || value.consumers.size() != 1) return node;
    const int user = value.consumers.front();
    return user >= of_.last_node || plan_.network.nodes[static_cast<size_t>(user)].is_loss ? node : leader_of(user);
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
               const std::function<KeptBytes(int, const std::vector<bool>&)>& bytes)
      : plan_(plan), device_(device), choice_(choice), bytes_(bytes) {}

  size_t total() const {
    KeptBytes all;
    for (size_t stage = 0; stage < plan_.stages.size(); ++stage) {
      if (plan_.schedule.device_of[stage] != device_) continue;
      const KeptBytes of = bytes_(static_cast<int>(stage), choice_.keep[stage]);
      all.own += of.own;
      all.working = std::max(all.working, of.working);
    }
    return all.own + all.working;
  }
  /// Of the limit, what is left for activations at most, with or without the working memory that is always there.
  double room(size_t limit, bool less_working) const {
    size_t taken = 0;
    size_t working = 0;
    for (size_t stage = 0; stage < plan_.stages.size(); ++stage) {
      if (plan_.schedule.device_of[stage] != device_) continue;
      const StageMemory& memory = plan_.stages[stage].memory;
      taken += memory.total() - memory.activations - memory.working;
      if (less_working) working = std::max(working, bytes_(static_cast<int>(stage), choice_.keep[stage]).least_working);
    }
    return static_cast<double>(limit) - static_cast<double>(taken + working);
  }
  void set(const Item& item, bool keep) {
    const int first = plan_.stages[static_cast<size_t>(item.stage)].first_node;
    for (const int node : item.nodes) choice_.keep[static_cast<size_t>(item.stage)][static_cast<size_t>(node - first)] = keep;
  }

 private:
  const Plan& plan_;
  int device_;
  KeepChoice& choice_;
  const std::function<KeptBytes(int, const std::vector<bool>&)>& bytes_;
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

/// The fractional knapsack: the best that any choice of items, or of parts of them, saves in `room`.
template <class BytesOf>
double fractional_bound(std::vector<Item> items, double room, BytesOf bytes_of) {
  const auto density = [&](const Item& item) { return item.seconds / std::max(bytes_of(item), 1.0); };
  std::stable_sort(items.begin(), items.end(), [&](const Item& a, const Item& b) { return density(a) > density(b); });
  double sum = 0;
  for (const Item& item : items) room -= std::min(0.0, bytes_of(item));  // what takes less when it is kept
  for (const Item& item : items) {
    const double bytes = std::max(0.0, bytes_of(item));
    const double part = bytes <= room ? 1.0 : std::max(0.0, room) / bytes;
    sum += part * item.seconds;
    room -= part * bytes;
  }
  return sum;
}

/// Two bounds, the lower of which counts: what is kept takes its bytes; and with one stage on the device, all that is not
/// kept stands in working memory when a recompute ends.
double bound_of(const std::vector<Item>& items, double room_for_kept, double room_for_all) {
  const double kept = fractional_bound(items, room_for_kept, [](const Item& item) { return item.bytes; });
  for (const Item& item : items) room_for_all -= item.again_bytes;
  const double all = fractional_bound(items, room_for_all, [](const Item& item) { return item.bytes - item.again_bytes; });
  return items.empty() || items.front().stage != items.back().stage ? kept : std::min(kept, all);
}

}  // namespace

bool recomputes(Rematerialize policy, int micro) {
  return policy != Rematerialize::none && (policy != Rematerialize::keep_first || micro > 0);
}

KeepChoice choose_kept(const Plan& plan, const std::vector<NodeProfile>& costs,
                       const std::function<KeptBytes(int stage, const std::vector<bool>& keep)>& bytes) {
  KeepChoice choice;
  for (const StagePlan& stage : plan.stages)
    choice.keep.emplace_back(static_cast<size_t>(stage.last_node - stage.first_node), false);
  for (int device = 0; device < plan.schedule.devices; ++device) {
    std::vector<Item> items;
    for (int stage = 0; stage < static_cast<int>(plan.stages.size()); ++stage) {
      if (plan.schedule.device_of[static_cast<size_t>(stage)] != device) continue;
      StageItems(plan, costs, stage).append(items);
    }
    std::stable_sort(items.begin(), items.end(), [](const Item& a, const Item& b) { return a.density() > b.density(); });
    const int64_t allowed = plan.devices.memory_limits[static_cast<size_t>(device)];
    const size_t limit = allowed > 0 ? static_cast<size_t>(allowed) : std::numeric_limits<size_t>::max();
    DeviceChoice on_device(plan, device, choice, bytes);
    if (on_device.total() > limit) continue;
    fill(on_device, items, limit);
    choice.bound += bound_of(items, on_device.room(limit, true), on_device.room(limit, false));
  }
  return choice;
}

}  // namespace gpipe::pipeline
