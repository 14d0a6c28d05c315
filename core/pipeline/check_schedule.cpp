// The checker of schedules: order within each stage, then a walk of all rows with channels that hold nothing.
#include "core/base/error.h"
#include "core/pipeline/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

namespace gpipe::pipeline {
namespace {

bool is_backward(Work work) { return work == Work::backward || work == Work::backward_input; }

/// A place in the rows.
struct Where {
  int device;
  size_t at;
  std::string words() const { return fmt::format("schedule: device {}, task {}", device, at); }
};

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
    for (size_t at = 0; at < row.size(); ++at) task(row[at], {device, at});
  }
  void end() const {
    for (int stage = 0; stage < schedule_.stages; ++stage) {
      const Progress& p = progress_[static_cast<size_t>(stage)];
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

  void task(const Task& task, const Where& where) {
    if (task.stage < 0 || task.stage >= schedule_.stages || task.micro < 0 || task.micro >= schedule_.micro_batches)
      throw base::BugError("{}: {} does not exist: {} stages, {} micro-batches", where.words(), words(task), schedule_.stages,
                           schedule_.micro_batches);
    if (schedule_.device_of[static_cast<size_t>(task.stage)] != where.device)
      throw base::BugError("{}: {} belongs to device {}", where.words(), words(task),
                           schedule_.device_of[static_cast<size_t>(task.stage)]);
    Progress& p = progress_[static_cast<size_t>(task.stage)];
    const auto after = [&](bool done, const char* what) {
      if (!done) throw base::BugError("{}: {} comes before its {}", where.words(), words(task), what);
    };
    int& next = p.next[static_cast<size_t>(task.work)];
    if (task.work == Work::recompute)  // not every micro-batch has one
      while (next < task.micro && !schedule_.recomputed(task.stage, next)) ++next;
    if (task.micro != next)
      throw base::BugError("{}: {} stands where that of micro-batch {} is due", where.words(), words(task), next);
    if (task.work == Work::recompute) {
      if (!schedule_.recomputed(task.stage, task.micro)) throw base::BugError("{}: {} is not wanted", where.words(), words(task));
      after(task.micro < p.of(Work::forward), "forward");
    }
    if (is_backward(task.work)) {
      after(task.micro < p.of(Work::forward), "forward");
      if (schedule_.recomputed(task.stage, task.micro)) after(task.micro < p.of(Work::recompute), "recompute");
    }
    if (task.work == Work::backward_weight) after(task.micro < p.of(Work::backward_input), "backward_input");
    ++next;
  }

  const Schedule& schedule_;
  std::vector<Progress> progress_;
};

/// Walks all rows with channels that hold nothing: what a stage sends stays in its hands until the receiver has come to the
/// task that takes it. A stage has one hand for what goes forward and one for what goes back, and starts no task while the hand
/// that it would fill is full. (With one for both, a forward and a backward that cross would block each other, and of all
/// schedules gpipe alone could run.) Within a device a message is simply there.
class Walk {
 public:
  explicit Walk(const Schedule& schedule)
      : schedule_(schedule),
        at_(schedule.rows.size()),
        hands_(schedule.device_of.size()),
        forwards_(schedule.device_of.size()),
        backwards_(schedule.device_of.size()) {
    for (size_t device = 0; device < at_.size(); ++device) wake(device);
  }

  void run() {
    while (!awake_.empty()) {
      const size_t device = awake_.back();
      awake_.pop_back();
      at_[device].awake = false;
      while (advance(device)) {}
    }
    for (size_t device = 0; device < at_.size(); ++device)  // all done: every message was for a task
      if (const size_t next = at_[device].next; next < schedule_.rows[device].size()) stuck(device, schedule_.rows[device][next]);
  }

 private:
  struct Place {
    size_t next = 0;     // in its row
    bool taken = false;  // what the next task needs from another device is here
    bool awake = false;
  };
  using Hand = std::optional<int>;  // the micro-batch whose message is not taken yet

  [[noreturn]] void stuck(size_t device, const Task& task) {
    const Hand& hand = hand_of(task.stage, task.work == Work::forward);
    const bool full = hand && (at_[device].taken || neighbour(task, -1) < 0);
    throw base::BugError("schedule: deadlock, device {} waits for ever at task {} ({}){}", device, at_[device].next, words(task),
                         full ? fmt::format(": what micro-batch {} sends is never taken", *hand) : ": its input never comes");
  }
  size_t device_of(int stage) const { return static_cast<size_t>(schedule_.device_of[static_cast<size_t>(stage)]); }
  /// The stage that gives (-1) or takes (+1) along the direction of the work; -1 for nobody.
  int neighbour(const Task& t, int side) const {
    if (t.work != Work::forward && !is_backward(t.work)) return -1;
    const int stage = t.stage + (t.work == Work::forward ? side : -side);
    return stage < schedule_.stages ? stage : -1;
  }
  Hand& hand_of(int stage, bool forward) { return hands_[static_cast<size_t>(stage)][forward ? 0 : 1]; }
  void wake(size_t device) {
    if (at_[device].awake) return;
    at_[device].awake = true;
    awake_.push_back(device);
  }

  bool has_input(const Task& task, size_t device) {
    Place& place = at_[device];
    const int from = neighbour(task, -1);
    if (from < 0 || place.taken) return true;
    const size_t other = device_of(from);
    const bool forward = task.work == Work::forward;
    if (other == device) return (forward ? forwards_ : backwards_)[static_cast<size_t>(from)] > task.micro;
    auto& hand = hand_of(from, forward);
    if (hand != task.micro) return false;
    hand.reset();
    wake(other);
    return place.taken = true;
  }

  bool advance(size_t device) {
    Place& place = at_[device];
    if (place.next >= schedule_.rows[device].size()) return false;
    const Task& task = schedule_.rows[device][place.next];
    if (!has_input(task, device)) return false;
    const bool forward = task.work == Work::forward;
    if (const int to = neighbour(task, 1); to >= 0 && device_of(to) != device) {
      auto& hand = hand_of(task.stage, forward);
      if (hand) return false;
      hand = task.micro;
      wake(device_of(to));
    }
    if (forward) ++forwards_[static_cast<size_t>(task.stage)];
    if (is_backward(task.work)) ++backwards_[static_cast<size_t>(task.stage)];
    ++place.next;
    place.taken = false;
    return true;
  }

  const Schedule& schedule_;
  std::vector<Place> at_;                   // by device
  std::vector<std::array<Hand, 2>> hands_;  // by stage: forward, backward
  std::vector<size_t> awake_;
  std::vector<int> forwards_, backwards_;  // by stage
};

}  // namespace

void check_schedule(const Schedule& schedule) {
  if (static_cast<int>(schedule.rows.size()) != schedule.devices ||
      static_cast<int>(schedule.device_of.size()) != schedule.stages)
    throw base::BugError("schedule: {} rows for {} devices, places of {} stages for {}", schedule.rows.size(), schedule.devices,
                         schedule.device_of.size(), schedule.stages);
  for (const int device : schedule.device_of)
    if (device < 0 || device >= schedule.devices)
      throw base::BugError("schedule: a stage is on device {} of {}", device, schedule.devices);
  RowCheck rows(schedule);
  for (int device = 0; device < schedule.devices; ++device) rows.row(device);
  rows.end();
  Walk(schedule).run();
}

}  // namespace gpipe::pipeline
