#include "core/pipeline/gap_fill.h"

#include "core/base/error.h"

#include <algorithm>
#include <cmath>
#include <deque>

namespace gpipe::pipeline {
namespace {

constexpr double k_rounding = 1e-9;  // relative: sums of costs and of shares of activations

/// What to do in a gap that is too short for a weight gradient.
enum class ShortGap {
  wait,
  fill,       // delay what comes after the gap rather than wait for it
  fill_worst  // only on the device that has waited longest so far: then the whole pipeline waits for it anyway
};

class Filler {
 public:
  /// Device d puts off at most d x `put_off` weight gradients (as zb_h1 and zb_h2 do with 1 and 2); any number if negative.
  Filler(const ScheduleRequest& request, const Schedule& order, ShortGap rule, int put_off)
      : request_(request),
        order_(order),
        rule_(rule),
        put_off_(put_off),
        part_(static_cast<double>(order.devices) / order.stages),
        places_(order.rows.size()),
        forward_ends_(order.device_of.size()),
        backward_ends_(order.device_of.size()) {}

  FilledSchedule operator()() {
    FilledSchedule out{order_};
    for (bool moved = true; moved;) {  // a task a turn, so that the devices' waiting times are comparable
      moved = false;
      for (size_t device = 0; device < places_.size(); ++device) moved = advance(device) || moved;
    }
    for (size_t device = 0; device < places_.size(); ++device) {
      Place& p = places_[device];
      GP_CHECK_EQ(p.next, order_.rows[device].size());
      while (!p.put_off.empty()) weight(p);
      out.span = std::max(out.span, p.now - p.first_start);
      out.makespan = std::max(out.makespan, p.now);
      out.schedule.rows[device] = std::move(p.row);
    }
    return out;
  }

 private:
  struct Place {
    std::vector<Task> row;
    size_t next = 0;           // in the order's row
    std::deque<Task> put_off;  // backward_weight tasks that may run
    double now = 0, first_start = 0, waited = 0;
    double held = 0;  // activations of whole devices
  };

  const StageCost& cost(const Task& task) const { return request_.costs[static_cast<size_t>(task.stage)]; }

  /// When the input of a forward or backward_input is there; negative while it is not known.
  double arrival(const Task& task) const {
    const bool forward = task.work == Work::forward;
    const int from = forward ? task.stage - 1 : task.stage + 1;
    if (from < 0 || from >= order_.stages) return 0;
    const auto& ends = (forward ? forward_ends_ : backward_ends_)[static_cast<size_t>(from)];
    if (ends.size() <= static_cast<size_t>(task.micro)) return -1;
    const auto device = [&](int stage) { return order_.device_of[static_cast<size_t>(stage)]; };
    const double at = ends[static_cast<size_t>(task.micro)] + (device(from) == device(task.stage) ? 0 : request_.transfer);
    return forward ? at : std::max(0.0, at - cost(task).recompute);
  }

  void weight(Place& p) {
    const Task task = p.put_off.front();
    p.put_off.pop_front();
    p.row.push_back(task);
    p.now += cost(task).backward_weight;
    p.held -= request_.weight_memory_share * part_;
  }

  bool worst(const Place& p, double gap) const {
    return std::all_of(places_.begin(), places_.end(), [&](const Place& other) { return p.waited + gap >= other.waited; });
  }

  void fill(Place& p, double until) {
    const double rounding = k_rounding * until;
    while (!p.put_off.empty() && p.now + cost(p.put_off.front()).backward_weight <= until + rounding) weight(p);
    const double gap = until - p.now;
    if (p.put_off.empty() || gap <= rounding || rule_ == ShortGap::wait) return;
    if (rule_ == ShortGap::fill || worst(p, gap)) weight(p);
  }

  bool advance(size_t device) {
    Place& p = places_[device];
    if (p.next == order_.rows[device].size()) return false;
    const Task task = order_.rows[device][p.next];
    const double at = arrival(task);
    if (at < 0) return false;
    const bool forward = task.work == Work::forward;
    if (p.next > 0) {
      if (forward)
        while (!p.put_off.empty() && p.held + part_ > request_.memory_limit * (1 + k_rounding)) weight(p);
      fill(p, at);
      p.waited += std::max(0.0, at - p.now);
    } else {
      p.first_start = at;
    }
    p.now = std::max(p.now, at) + (forward ? cost(task).forward : cost(task).recompute + cost(task).backward_input);
    p.held += forward ? part_ : (request_.weight_memory_share - 1) * part_;
    (forward ? forward_ends_ : backward_ends_)[static_cast<size_t>(task.stage)].push_back(p.now);
    if (!forward) p.put_off.push_back({Work::backward_weight, task.micro, task.stage});
    p.row.push_back(task);
    ++p.next;
    const auto most = static_cast<size_t>(put_off_) * device;
    while (!forward && put_off_ >= 0 && p.put_off.size() > most) weight(p);
    return true;
  }

  const ScheduleRequest& request_;
  const Schedule& order_;
  ShortGap rule_;
  int put_off_;
  double part_;  // of a device's activation, a stage's
  std::vector<Place> places_;
  std::vector<std::vector<double>> forward_ends_, backward_ends_;  // by stage and micro-batch
};

}  // namespace

FilledSchedule fill_gaps(const ScheduleRequest& request, const Schedule& order) {
  FilledSchedule best;
  for (const int put_off : {-1, 1, 2})
    for (const ShortGap rule : {ShortGap::wait, ShortGap::fill, ShortGap::fill_worst})
      keep_better(best, Filler(request, order, rule, put_off)());
  return best;
}

void keep_better(FilledSchedule& best, FilledSchedule other) {
  const double rounding = k_rounding * best.makespan;
  const bool same = std::abs(other.span - best.span) <= rounding;
  if (best.schedule.rows.empty() || (same ? other.makespan < best.makespan - rounding : other.span < best.span))
    best = std::move(other);
}

ScheduleRequest complete(ScheduleRequest request, int chunks) {
  if (request.costs.empty()) request.costs.resize(static_cast<size_t>(request.devices * chunks));
  GP_CHECK_EQ(request.costs.size(), static_cast<size_t>(request.devices * chunks));
  if (request.memory_limit == 0) request.memory_limit = request.devices;
  return request;
}

}  // namespace gpipe::pipeline
