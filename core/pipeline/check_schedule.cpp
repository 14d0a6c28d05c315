// The checker of schedules: order within each stage, then a walk of all rows with channels that hold nothing.
#include "core/base/error.h"
#include "core/pipeline/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace gpipe::pipeline {
namespace {

bool is_backward(Work work) { return work == Work::backward || work == Work::backward_input; }

std::string words(const Task& task) { return fmt::format("{}{} of stage {}", letter(task.work), task.micro, task.stage); }

/// What one stage has done so far, by kind of work: the micro-batch that is due next.
struct Progress {
  std::array<int, k_works> next{};
  int of(Work work) const { return next[static_cast<size_t>(work)]; }
  int backwards() const { return of(Work::backward) + of(Work::backward_input); }
};

class RowCheck {
 public:
  explicit RowCheck(const Schedule& schedule) : schedule_(schedule), progress_(static_cast<size_t>(schedule.stages)) {}

  void row(int device) {
    const auto& row = schedule_.rows[static_cast<size_t>(device)];
    for (size_t at = 0; at < row.size(); ++at) {
      const std::string where = fmt::format("schedule: device {}, task {}", device, at);
      task(row[at], device, where);
    }
  }
  void end() const {
    for (int stage = 0; stage < schedule_.stages; ++stage) {
      const Progress& p = progress_[static_cast<size_t>(stage)];
      expect(stage, p.of(Work::forward), "forward");
      expect(stage, p.backwards(), "backward");
      if (p.of(Work::backward_input) > 0 || p.of(Work::backward_weight) > 0)
        expect(stage, p.of(Work::backward_weight), "backward_weight");
    }
  }

 private:
  void expect(int stage, int count, const char* what) const {
    if (count != schedule_.micro_batches)
      throw base::BugError("schedule: stage {} has {} of {} {} tasks", stage, count, schedule_.micro_batches, what);
  }

  void task(const Task& task, int device, const std::string& where) {
    if (task.stage < 0 || task.stage >= schedule_.stages || task.micro < 0 || task.micro >= schedule_.micro_batches)
      throw base::BugError("{}: {} does not exist: {} stages, {} micro-batches", where, words(task), schedule_.stages,
                           schedule_.micro_batches);
    if (schedule_.device_of[static_cast<size_t>(task.stage)] != device)
      throw base::BugError("{}: {} belongs to device {}", where, words(task),
                           schedule_.device_of[static_cast<size_t>(task.stage)]);
    Progress& p = progress_[static_cast<size_t>(task.stage)];
    const auto after = [&](bool done, const char* what) {
      if (!done) throw base::BugError("{}: {} comes before its {}", where, words(task), what);
    };
    int& next = p.next[static_cast<size_t>(task.work)];
    if (task.work == Work::recompute) {  // not every micro-batch has one
      after(task.micro < p.of(Work::forward), "forward");
      if (!schedule_.recomputed(task.stage, task.micro)) throw base::BugError("{}: {} is not wanted", where, words(task));
      if (task.micro < next || task.micro < p.backwards())
        throw base::BugError("{}: {} comes after its backward, or twice", where, words(task));
      next = task.micro + 1;
      return;
    }
    if (task.micro != next) throw base::BugError("{}: {} stands where that of micro-batch {} is due", where, words(task), next);
    if (is_backward(task.work)) {
      after(task.micro < p.of(Work::forward), "forward");
      if (schedule_.recomputed(task.stage, task.micro)) after(task.micro < p.of(Work::recompute), "recompute");
      if (p.of(Work::backward) > 0 && p.of(Work::backward_input) > 0)
        throw base::BugError("{}: {} mixes whole and split backwards", where, words(task));
    }
    if (task.work == Work::backward_weight) after(task.micro < p.of(Work::backward_input), "backward_input");
    ++next;
  }

  const Schedule& schedule_;
  std::vector<Progress> progress_;
};

/// Walks all rows with channels that hold nothing: a task that hands something to another device ends only when its
/// receiver stands at the task that takes it. Within a device a message is simply there.
class Walk {
 public:
  explicit Walk(const Schedule& schedule)
      : schedule_(schedule),
        at_(schedule.rows.size(), 0),
        done_(schedule.rows.size(), false),
        forwards_(static_cast<size_t>(schedule.stages), 0),
        backwards_(static_cast<size_t>(schedule.stages), 0) {}

  void run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t device = 0; device < at_.size(); ++device)
        while (advance(device)) moved = true;
    }
    for (size_t device = 0; device < at_.size(); ++device)
      if (at_[device] < schedule_.rows[device].size())
        throw base::BugError("schedule: deadlock, device {} waits for ever at task {} ({})", device, at_[device],
                             words(task(device)));
  }

 private:
  const Task& task(size_t device) const { return schedule_.rows[device][at_[device]]; }
  int device_of(int stage) const { return schedule_.device_of[static_cast<size_t>(stage)]; }
  /// The stage that gives (-1) or takes (+1) along the direction of the work; -1 for nobody.
  int neighbour(const Task& t, int side) const {
    if (t.work != Work::forward && !is_backward(t.work)) return -1;
    const int stage = t.stage + (t.work == Work::forward ? side : -side);
    return stage < schedule_.stages ? stage : -1;
  }

  bool advance(size_t device) {
    if (at_[device] >= schedule_.rows[device].size() || done_[device]) return false;
    const Task now = task(device);
    if (const int from = neighbour(now, -1); from >= 0) {
      const auto other = static_cast<size_t>(device_of(from));
      if (other == device) {
        const auto& count = now.work == Work::forward ? forwards_ : backwards_;
        if (count[static_cast<size_t>(from)] <= now.micro) return false;
      } else {
        if (!done_[other] || at_[other] >= schedule_.rows[other].size()) return false;
        const Task sent = task(other);
        const bool same =
            sent.stage == from && sent.micro == now.micro && (sent.work == Work::forward) == (now.work == Work::forward);
        if (!same) return false;
        done_[other] = false;
        ++at_[other];
      }
    }
    if (now.work == Work::forward) ++forwards_[static_cast<size_t>(now.stage)];
    if (is_backward(now.work)) ++backwards_[static_cast<size_t>(now.stage)];
    const int to = neighbour(now, 1);
    done_[device] = to >= 0 && device_of(to) != static_cast<int>(device);
    if (!done_[device]) ++at_[device];
    return true;
  }

  const Schedule& schedule_;
  std::vector<size_t> at_;
  std::vector<bool> done_;                 // the current task's work is done, its message is not taken yet
  std::vector<int> forwards_, backwards_;  // by stage
};

}  // namespace

void check_schedule(const Schedule& schedule) {
  if (static_cast<int>(schedule.rows.size()) != schedule.devices ||
      static_cast<int>(schedule.device_of.size()) != schedule.stages)
    throw base::BugError("schedule: {} rows for {} devices, places of {} stages for {}", schedule.rows.size(), schedule.devices,
                         schedule.device_of.size(), schedule.stages);
  RowCheck rows(schedule);
  for (int device = 0; device < schedule.devices; ++device) rows.row(device);
  rows.end();
  Walk(schedule).run();
}

}  // namespace gpipe::pipeline
