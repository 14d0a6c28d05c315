// RunRecord: result.json and the closing words of a run, whatever its end. Owned by the train command; main thread.
#pragma once

#include "app/cli.h"
#include "app/compose.h"
#include "app/observers.h"
#include "app/plan_page.h"
#include "app/run_folder.h"
#include "core/train/trainer.h"

#include <chrono>
#include <exception>
#include <string>

namespace gpipe::app {

class RunRecord {
 public:
  /// All must outlive the record. The run's time counts from here.
  RunRecord(const Command& command, const Composition& composition, const PlanPage& page, const RunFolder& folder);

  /// The run ended as it should, or was stopped. FileError when result.json cannot be written.
  void ended(const train::Trainer& trainer, const StepTimes& times, base::ExitCode code);
  /// The run failed; `trainer` is null when it did not come to be. Throws nothing: the error on its way is the one to tell.
  /// The first failure that is told counts.
  void failed(const std::exception_ptr& error, const train::Trainer* trainer) noexcept;

 private:
  nlohmann::json result(base::ExitCode code, const train::Trainer* trainer) const;
  void summary(const nlohmann::json& result) const;
  /// Predicted and measured, side by side.
  nlohmann::json comparison(const StepTimes& times, size_t arena_bytes) const;

  const Command& command_;
  const Composition& composition_;
  const PlanPage& page_;
  const RunFolder& folder_;
  std::chrono::steady_clock::time_point begin_;
  size_t steps_now_ = 0;  // of this process
  bool told_ = false;
};

}  // namespace gpipe::app
