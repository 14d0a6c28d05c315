// The simulator: when every task of a schedule would run, what each device waits for, how much it holds. Pure functions.
#pragma once

#include "core/pipeline/schedule.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace gpipe::pipeline {

/// A link between two devices, one each way. A message takes latency + bytes / bytes_per_second.
struct LinkModel {
  double latency = 0;           // seconds, or the unit of costs
  double bytes_per_second = 0;  // 0: no limit
  bool queues = false;          // messages on one link wait for each other (bandwidth part only)
};

/// What a micro-batch holds on a stage: `kept` from its forward to its backward (or backward_input), `for_weight` from
/// backward_input to backward_weight. One that is recomputed holds `border` from its forward on, `kept` from its recompute on.
/// Bytes, or activations.
struct StageHolding {
  double kept = 1;
  double for_weight = 0;
  double border = 0;
};

struct SimulationInput {
  std::vector<StageCost> costs;        // by stage
  std::vector<StageHolding> holdings;  // by stage; empty: one activation each, gone with backward_input
  std::vector<double> forward_bytes;   // by stage: what its forward sends to the next stage; empty: none
  std::vector<double> backward_bytes;  // by stage: what its backward sends to the stage before; empty: none
  LinkModel link;
  std::vector<double> finish;  // by device: work after its last task, once all are done (update); empty: none
};

/// One task as it ran.
struct Span {
  Task task;
  int device = 0;
  double start = 0, end = 0;
  double held = 0;  // by the device at the end of the task
};

struct DeviceTimes {
  double first_start = 0, last_end = 0;  // of its tasks
  double busy = 0;                       // with its tasks and `finish`
  double peak_held = 0;
};

struct Simulation {
  double makespan = 0;  // end of the last task, `finish` included
  std::vector<DeviceTimes> devices;
  /// (c - w) / c: c the longest span of a device from its first start to its last end, w the work of a device that has the
  /// mean of all work (2401.10241, section 5.1). 0 for no tasks.
  double bubble_rate = 0;
  double idle_share(int device) const;  // of the makespan
};

/// Called for every task, in no particular order between devices, ascending on each.
using SpanSink = std::function<void(const Span&)>;

/// A task starts when its device is free and its input has arrived; messages wait for their receiver, not the sender for it.
/// Throws BugError for rows that wait for each other for ever, or take messages out of order.
Simulation simulate(const Schedule& schedule, const SimulationInput& input, const SpanSink& sink = {});
/// The same for rows made on the way (ScheduleType::stream): memory grows with devices and stages, not with M. Schedules that
/// have no stream are made first.
Simulation simulate_streams(const ScheduleRequest& request, const ScheduleType& type, const SimulationInput& input,
                            const SpanSink& sink = {});

}  // namespace gpipe::pipeline
