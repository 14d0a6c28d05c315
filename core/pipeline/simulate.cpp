#include "core/pipeline/simulate.h"

#include "core/base/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>

namespace gpipe::pipeline {
namespace {

class GivenRow final : public RowStream {
 public:
  explicit GivenRow(const std::vector<Task>& row) : row_(row) {}
  bool next(Task& task) override {
    if (at_ == row_.size()) return false;
    task = row_[at_++];
    return true;
  }

 private:
  const std::vector<Task>& row_;
  size_t at_ = 0;
};

bool is_backward(Work work) { return work == Work::backward || work == Work::backward_input; }

/// Nothing here depends on the order in which devices are looked at: a device's times follow from its own row and from when
/// its messages arrive. So there is no queue of events; each device goes on until it waits for a message that is not sent yet.
class Run {
 public:
  using Recomputed = std::function<bool(int stage, int micro)>;

  Run(int stages, const std::vector<int>& device_of, std::vector<std::unique_ptr<RowStream>> rows, const SimulationInput& input,
      const SpanSink& sink, Recomputed recomputed)
      : input_(input),
        sink_(sink),
        recomputed_(std::move(recomputed)),
        device_of_(device_of),
        ports_(static_cast<size_t>(stages)) {
    GP_CHECK_EQ(input.costs.size(), ports_.size());
    for (const auto* sizes : {&input.forward_bytes, &input.backward_bytes})
      if (!sizes->empty()) GP_CHECK_EQ(sizes->size(), ports_.size());
    if (!input.holdings.empty()) GP_CHECK_EQ(input.holdings.size(), ports_.size());
    if (!input.finish.empty()) GP_CHECK_EQ(input.finish.size(), rows.size());
    for (auto& row : rows) places_.push_back({.row = std::move(row)});
    std::map<std::pair<int, int>, size_t> links;  // one for each ordered pair of devices that talk
    for (int stage = 0; stage < stages; ++stage)
      for (const int direction : {0, 1}) {
        const int to = neighbour(stage, direction, 1);
        if (to < 0 || device(stage) == device(to)) continue;
        port(stage, direction).link = links.try_emplace({device(stage), device(to)}, links.size()).first->second;
      }
    link_free_.assign(links.size(), 0);
  }

  Simulation operator()() {
    for (auto& place : places_) place.has_task = place.row->next(place.task);
    for (;;) {
      for (size_t device = places_.size(); device-- > 0;) wake(static_cast<int>(device));
      while (!awake_.empty()) {
        const int device = awake_.back();
        awake_.pop_back();
        place(device).awake = false;
        while (advance(device)) {}
      }
      const auto waits = std::find_if(places_.begin(), places_.end(), [](const Place& p) { return p.has_task; });
      if (waits == places_.end()) return result();
      if (!crowded_)
        throw base::BugError("simulate: deadlock, device {} waits for ever to start {}{} of stage {}", waits - places_.begin(),
                             letter(waits->task.work), waits->task.micro, waits->task.stage);
      most_waiting_ *= 2;  // rows that need more messages in between than any of ours do
      crowded_ = false;
    }
  }

 private:
  struct Message {
    double arrival;
    int micro;
  };
  /// Where a stage sends in one direction.
  struct Port {
    std::deque<Message> waiting;  // sent, not taken yet
    size_t link = 0;
  };
  struct Place {
    std::unique_ptr<RowStream> row;
    Task task{};  // the one that is due
    bool has_task = false;
    bool awake = false;
    bool started = false;
    double held = 0;
    DeviceTimes times;
  };

  Place& place(int device) { return places_[static_cast<size_t>(device)]; }
  int device(int stage) const { return device_of_[static_cast<size_t>(stage)]; }
  Port& port(int stage, int direction) { return ports_[static_cast<size_t>(stage)][static_cast<size_t>(direction)]; }
  /// The stage before (-1) or after (+1) this one in a direction (0 forward, 1 backward); -1 when there is none.
  int neighbour(int stage, int direction, int side) const {
    const int other = direction == 0 ? stage + side : stage - side;
    return other < static_cast<int>(ports_.size()) ? other : -1;
  }
  void wake(int device) {
    if (place(device).awake) return;
    place(device).awake = true;
    awake_.push_back(device);
  }

  /// Does the device's next task; false when it has none or waits.
  bool advance(int device) {
    Place& p = place(device);
    if (!p.has_task) return false;
    const Task task = p.task;
    double start = p.times.last_end;
    const int direction = task.work == Work::forward ? 0 : is_backward(task.work) ? 1 : -1;
    const int to = direction < 0 ? -1 : neighbour(task.stage, direction, 1);
    const int from = direction < 0 ? -1 : neighbour(task.stage, direction, -1);
    if (to >= 0 && port(task.stage, direction).waiting.size() >= most_waiting_) {
      crowded_ = true;
      return false;
    }
    if (from >= 0) {
      auto& waiting = port(from, direction).waiting;
      if (waiting.empty()) return false;
      if (waiting.front().micro != task.micro)
        throw base::BugError("simulate: device {} is to start {}{} of stage {}, but what comes is of micro-batch {}", device,
                             letter(task.work), task.micro, task.stage, waiting.front().micro);
      start = std::max(start, waiting.front().arrival);
      waiting.pop_front();
      wake(this->device(from));  // it may have waited for room
    }
    const double end = start + seconds(task);
    if (to >= 0) send(task, direction, to, end);
    hold(p, task);
    p.times.busy += end - start;
    if (!p.started) p.times.first_start = start;
    p.started = true;
    p.times.last_end = end;
    if (sink_) sink_({task, device, start, end, p.held});
    p.has_task = p.row->next(p.task);
    return true;
  }

  double seconds(const Task& task) const {
    const StageCost& cost = input_.costs[static_cast<size_t>(task.stage)];
    switch (task.work) {
      case Work::forward: return cost.forward;
      case Work::recompute: return cost.recompute;
      case Work::backward: return cost.backward_input + cost.backward_weight;
      case Work::backward_input: return cost.backward_input;
      case Work::backward_weight: return cost.backward_weight;
    }
    return 0;
  }

  void send(const Task& task, int direction, int to, double end) {
    Port& out = port(task.stage, direction);
    double arrival = end;
    if (device(to) != device(task.stage)) {
      const auto& sizes = direction == 0 ? input_.forward_bytes : input_.backward_bytes;
      const double bytes = sizes.empty() ? 0 : sizes[static_cast<size_t>(task.stage)];
      const double on_link = input_.link.bytes_per_second > 0 ? bytes / input_.link.bytes_per_second : 0;
      if (input_.link.queues) {  // a device sends in the order of its row, so the link's queue is known by now
        double& free = link_free_[out.link];
        free = std::max(free, end) + on_link;
        arrival = free + input_.link.latency;
      } else {
        arrival = end + on_link + input_.link.latency;
      }
    }
    out.waiting.push_back({arrival, task.micro});
    wake(device(to));
  }

  void hold(Place& p, const Task& task) const {
    const StageHolding h = input_.holdings.empty() ? StageHolding{} : input_.holdings[static_cast<size_t>(task.stage)];
    switch (task.work) {
      case Work::forward: p.held += recomputed_(task.stage, task.micro) ? h.border : h.kept; break;
      case Work::recompute: p.held += h.kept - h.border; break;
      case Work::backward: p.held -= h.kept; break;
      case Work::backward_input: p.held += h.for_weight - h.kept; break;
      case Work::backward_weight: p.held -= h.for_weight; break;
    }
    p.times.peak_held = std::max(p.times.peak_held, p.held);
  }

  Simulation result() {
    Simulation out;
    double work = 0;
    double longest = 0;
    for (const Place& p : places_) {
      work += p.times.busy;
      longest = std::max(longest, p.times.last_end - p.times.first_start);
      out.makespan = std::max(out.makespan, p.times.last_end);
      out.devices.push_back(p.times);
    }
    if (longest > 0) out.bubble_rate = 1 - work / static_cast<double>(places_.size()) / longest;
    if (!input_.finish.empty()) {
      for (size_t device = 0; device < places_.size(); ++device) out.devices[device].busy += input_.finish[device];
      out.makespan += *std::max_element(input_.finish.begin(), input_.finish.end());
    }
    return out;
  }

  const SimulationInput& input_;
  const SpanSink& sink_;
  Recomputed recomputed_;
  const std::vector<int>& device_of_;
  std::vector<Place> places_;               // by device
  std::vector<std::array<Port, 2>> ports_;  // by stage and direction
  std::vector<double> link_free_;
  std::vector<int> awake_;
  // Bounds memory: a device that is so far ahead of its receiver lets that one go first. Changes no time.
  size_t most_waiting_ = 64;
  bool crowded_ = false;
};

}  // namespace

double Simulation::idle_share(int device) const {
  return makespan > 0 ? 1 - devices[static_cast<size_t>(device)].busy / makespan : 0;
}

Simulation simulate(const Schedule& schedule, const SimulationInput& input, const SpanSink& sink) {
  std::vector<std::unique_ptr<RowStream>> rows;
  for (const auto& row : schedule.rows) rows.push_back(std::make_unique<GivenRow>(row));
  return Run(schedule.stages, schedule.device_of, std::move(rows), input, sink,
             [&](int stage, int micro) { return schedule.recomputed(stage, micro); })();
}

Simulation simulate_streams(const ScheduleRequest& request, const ScheduleType& type, const SimulationInput& input,
                            const SpanSink& sink) {
  if (type.stream == nullptr) return simulate(type.make(request), input, sink);
  const int chunks = type.chunks > 0 ? type.chunks : request.chunks;
  const auto device_of = devices_of_stages(request.devices, chunks, false);
  std::vector<std::unique_ptr<RowStream>> rows;
  for (int device = 0; device < request.devices; ++device) rows.push_back(type.stream(request, device));
  return Run(request.devices * chunks, device_of, std::move(rows), input, sink, [](int, int) { return false; })();
}

}  // namespace gpipe::pipeline
