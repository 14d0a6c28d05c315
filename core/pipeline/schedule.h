// A schedule as data: for each stage, the ordered list of its tasks. It knows no device and no tensor.
//
// A schedule is a pure function of (K, M, recompute); core/pipeline/schedules.def lists them. On every schedule a stage
// goes through the micro-batches in ascending order in each direction, so sums over micro-batches are the same sums.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gpipe::pipeline {

enum class Work : uint8_t { forward, recompute, backward };

/// One entry of a row: this work, of this micro-batch.
struct Task {
  Work work;
  int micro;
  bool operator==(const Task&) const = default;
};

struct Schedule {
  int stages = 0;
  int micro_batches = 0;
  std::vector<std::vector<Task>> rows;  // rows[j]: what stage j does, in order
};

struct ScheduleRequest {
  int stages;
  int micro_batches;
  bool recompute;
};

/// One row of the list of schedules.
struct ScheduleType {
  const char* name;
  const char* summary;
  Schedule (*make)(const ScheduleRequest& request);
};

const std::vector<ScheduleType>& schedule_types();
/// Throws ConfigError naming the known ones.
const ScheduleType& find_schedule(const std::string& name);

/// What a stage must hold, read off its row.
struct LiveCounts {
  int kept = 0;        // micro-batches between their forward and the end of their backward
  int recomputed = 0;  // micro-batches between the start of their recompute and the end of their backward
};
LiveCounts live_counts(const std::vector<Task>& row, int micro_batches);

/// Throws BugError naming stage, position and task when a task is missing, doubled or out of order, or when the rows
/// would wait for each other for ever although no channel holds a message (a send waits until the receiver takes it).
void check_schedule(const Schedule& schedule);

/// The rows as text, a line a stage: F0 F1 .. R0 B0 ..
std::string picture(const Schedule& schedule);

}  // namespace gpipe::pipeline
