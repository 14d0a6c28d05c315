// What a plan will take: its tasks' costs from those of the nodes, and the simulated step. Pure functions.
#pragma once

#include "core/pipeline/plan.h"
#include "core/pipeline/simulate.h"

#include <vector>

namespace gpipe::pipeline {

struct Prediction {
  std::vector<StageCost> stages;  // seconds of the tasks of the largest micro-batch; recompute counts where there is one
  std::vector<double> update;     // seconds, by device
  Simulation simulation;          // of one step, update included
  double step_seconds() const { return simulation.makespan; }
  /// Share of the devices' time in which they wait.
  double bubble() const;
  /// Seconds of work in a mini-batch, by stage, update not counted.
  double stage_seconds(int stage, const Plan& plan) const;
};

/// By Plan::costs and the instructions of the plan's programs. Messages within a process take no time: the sender writes
/// its result where the receiver reads it.
Prediction predict(const Plan& plan, const SpanSink& sink = {});

}  // namespace gpipe::pipeline
