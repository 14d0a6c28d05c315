// Trace: the real timeline of training steps, recorded task by task; what it adds up to, and as Chrome-trace JSON.
//
// The recorder is owned by whoever traces and must outlive its time as the engine's observer. Stage threads write into
// memory that it took beforehand, one thread a device; everything else is called while the engine is idle.
#pragma once

#include "core/pipeline/plan.h"
#include "core/pipeline/stage.h"
#include "core/pipeline/timeline.h"

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace gpipe::pipeline {

/// What a stage does after its last task.
struct PartSpan {
  TaskObserver::Part part;
  int stage = 0, device = 0;
  double start = 0, end = 0;
};

/// One step as it ran; seconds since the recorder was made. On each device in order of time.
struct StepTrace {
  int64_t step = 0;
  std::vector<Span> spans;
  std::vector<PartSpan> parts;
  double start() const;  // of its first work
  double end() const;    // of its last work
};

class TaskRecorder final : public TaskObserver {
 public:
  explicit TaskRecorder(const Schedule& schedule);
  void task(const Task& task, Time start, Time end) override;
  void part(int stage, Part part, Time start, Time end) override;
  /// What was recorded since the last call.
  StepTrace take(int64_t step);

 private:
  struct Device {
    std::vector<Span> spans;
    std::vector<PartSpan> parts;
  };
  double seconds(Time time) const { return std::chrono::duration<double>(time - origin_).count(); }

  std::vector<int> device_of_;
  std::vector<Device> devices_;
  Time origin_;
};

struct StepTimes {
  double seconds = 0;                // from the first work to the last
  std::vector<double> busy_seconds;  // by device
  double bubble = 0;                 // share of the devices' time in which they waited
};
StepTimes times_of(const StepTrace& trace, int devices);

/// A step as a picture: from its first work on, in ms.
Timeline timeline_of(const StepTrace& trace, std::string title, const Schedule& schedule);

/// Stages between which values or gradients travel: from a stage's forward to another's, or from backward to backward.
struct StageLink {
  int from = 0, to = 0;
  bool gradient = false;
  bool operator==(const StageLink&) const = default;
};
/// Of stages on different devices, each once.
std::vector<StageLink> links_of(const Plan& plan);

/// For Perfetto and chrome://tracing: one process, a thread a device and one for the steps; a complete event for each span
/// (its args: step, task, stage, micro_batch), a flow for each transfer. Times are microseconds since the first event.
std::string chrome_trace(const std::vector<StepTrace>& steps, const std::string& name, const Schedule& schedule,
                         const std::vector<StageLink>& links);

}  // namespace gpipe::pipeline
