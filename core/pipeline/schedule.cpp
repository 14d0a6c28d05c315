#include "core/pipeline/schedule.h"

#include "core/base/error.h"

#include <fmt/format.h>

#include <algorithm>

namespace gpipe::pipeline {

#define GPIPE_SCHEDULE(name, summary) Schedule make_##name(const ScheduleRequest& request);
#include "core/pipeline/schedules.def"
#undef GPIPE_SCHEDULE

namespace {

char letter(Work work) { return work == Work::forward ? 'F' : work == Work::recompute ? 'R' : 'B'; }

std::string name_of(const Task& task) { return fmt::format("{}{}", letter(task.work), task.micro); }

/// Every task once, each kind in ascending order, and F before R before B of the same micro-batch.
void check_row(const std::vector<Task>& row, int stage, int micro_batches) {
  int next[3] = {0, 0, 0};  // the micro-batch that each kind of work wants next
  const bool recompute = std::any_of(row.begin(), row.end(), [](const Task& task) { return task.work == Work::recompute; });
  for (size_t at = 0; at < row.size(); ++at) {
    const Task& task = row[at];
    int& wanted = next[static_cast<int>(task.work)];
    if (task.micro != wanted)
      throw base::BugError("schedule: stage {}, task {}: {} stands where {}{} is due", stage, at, name_of(task),
                           letter(task.work), wanted);
    const Work before = task.work == Work::backward && recompute ? Work::recompute : Work::forward;
    if (task.work != Work::forward && next[static_cast<int>(before)] <= task.micro)
      throw base::BugError("schedule: stage {}, task {}: {} comes before {}{}", stage, at, name_of(task), letter(before),
                           task.micro);
    ++wanted;
  }
  for (const Work work : {Work::forward, Work::recompute, Work::backward}) {
    const int count = next[static_cast<int>(work)];
    if (count != micro_batches && (work != Work::recompute || count != 0))
      throw base::BugError("schedule: stage {} has {} of {} tasks of kind {}", stage, count, micro_batches, letter(work));
  }
}

/// Walks all rows with channels that hold nothing: a task that hands something on ends only when its receiver stands at
/// the task that takes it.
void check_no_deadlock(const Schedule& schedule) {
  const auto stages = static_cast<size_t>(schedule.stages);
  std::vector<size_t> at(stages, 0);
  std::vector<bool> done(stages, false);  // the current task's work is done, its message is not taken yet
  const auto task = [&](size_t stage) -> const Task& { return schedule.rows[stage][at[stage]]; };
  const auto finished = [&](size_t stage) { return at[stage] == schedule.rows[stage].size(); };
  // Who takes the message of `stage`'s current task; stages for "nobody".
  const auto receiver = [&](size_t stage) {
    if (task(stage).work == Work::forward && stage + 1 < stages) return stage + 1;
    if (task(stage).work == Work::backward && stage > 0) return stage - 1;
    return stages;
  };
  const auto sender = [&](size_t stage) {
    if (task(stage).work == Work::forward && stage > 0) return stage - 1;
    if (task(stage).work == Work::backward && stage + 1 < stages) return stage + 1;
    return stages;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t stage = 0; stage < stages; ++stage) {
      if (finished(stage) || done[stage]) continue;
      const size_t from = sender(stage);
      if (from != stages) {
        if (finished(from) || !done[from] || !(task(from) == task(stage))) continue;
        done[from] = false;
        ++at[from];
      }
      moved = true;
      done[stage] = receiver(stage) != stages;
      if (!done[stage]) ++at[stage];
    }
  }
  for (size_t stage = 0; stage < stages; ++stage)
    if (!finished(stage))
      throw base::BugError("schedule: deadlock, stage {} waits for ever at task {} ({})", stage, at[stage], name_of(task(stage)));
}

}  // namespace

const std::vector<ScheduleType>& schedule_types() {
  static const std::vector<ScheduleType> types{
#define GPIPE_SCHEDULE(name, summary) {#name, summary, make_##name},
#include "core/pipeline/schedules.def"
#undef GPIPE_SCHEDULE
  };
  return types;
}

const ScheduleType& find_schedule(const std::string& name) {
  std::string known;
  for (const ScheduleType& type : schedule_types()) {
    if (type.name == name) return type;
    known += known.empty() ? type.name : fmt::format(", {}", type.name);
  }
  throw base::ConfigError("pipeline.schedule: unknown schedule '{}'; known: {}", name, known);
}

LiveCounts live_counts(const std::vector<Task>& row, int micro_batches) {
  LiveCounts most;
  int kept = 0;
  int recomputed = 0;
  std::vector<bool> was_recomputed(static_cast<size_t>(micro_batches), false);
  for (const Task& task : row) {
    if (task.work == Work::forward) ++kept;
    if (task.work == Work::recompute) {
      ++recomputed;
      was_recomputed[static_cast<size_t>(task.micro)] = true;
    }
    most.kept = std::max(most.kept, kept);
    most.recomputed = std::max(most.recomputed, recomputed);
    if (task.work == Work::backward) {
      --kept;
      if (was_recomputed[static_cast<size_t>(task.micro)]) --recomputed;
    }
  }
  return most;
}

void check_schedule(const Schedule& schedule) {
  if (static_cast<int>(schedule.rows.size()) != schedule.stages)
    throw base::BugError("schedule: {} rows for {} stages", schedule.rows.size(), schedule.stages);
  for (int stage = 0; stage < schedule.stages; ++stage)
    check_row(schedule.rows[static_cast<size_t>(stage)], stage, schedule.micro_batches);
  check_no_deadlock(schedule);
}

std::string picture(const Schedule& schedule) {
  std::string text;
  for (size_t stage = 0; stage < schedule.rows.size(); ++stage) {
    text += fmt::format("stage {:<3}", stage);
    for (const Task& task : schedule.rows[stage]) text.append(1, ' ').append(name_of(task));
    text += "\n";
  }
  return text;
}

}  // namespace gpipe::pipeline
