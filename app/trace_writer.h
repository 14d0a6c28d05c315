// TraceWriter: `train --trace N`: lets the engine record some steps and leaves trace.json and timeline.svg in the run folder.
// Owned by the train command; main thread.
#pragma once

#include "app/run_folder.h"
#include "core/pipeline/engine.h"
#include "core/pipeline/trace.h"
#include "core/train/trainer.h"

#include <cstdint>
#include <string>
#include <vector>

namespace gpipe::app {

/// Which steps to trace: `count` of those left, from the third on (the first ones still touch their memory for the first
/// time), or sooner when fewer are left.
struct TracedSteps {
  int64_t first = 0, last = 0;  // counted from 1; last < first: none
};
TracedSteps traced_steps(int64_t done, int64_t total, int64_t count);

class TraceWriter final : public train::TrainObserver {
 public:
  /// All must outlive it. `done` steps of `total` are behind the run.
  TraceWriter(const RunFolder& folder, pipeline::Engine& engine, std::string name, TracedSteps steps, int64_t done);
  ~TraceWriter() override { engine_.set_task_observer(nullptr); }
  void step_done(const train::StepReport& report) override;
  /// Writes what there is when the run ends before the last step to trace.
  void finish();
  /// A line to tell: which steps are in the files, and where they are.
  std::string summary() const;

 private:
  void write();

  const RunFolder& folder_;
  pipeline::Engine& engine_;
  std::string name_;
  TracedSteps steps_;
  pipeline::TaskRecorder recorder_;
  std::vector<pipeline::StepTrace> traces_;
  bool written_ = false;
};

}  // namespace gpipe::app
