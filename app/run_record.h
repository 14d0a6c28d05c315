// RunRecord: result.json and the closing words of a run, whatever its end. Owned by the train command; main thread.
#pragma once

#include "app/cli.h"
#include "app/compose.h"
#include "app/run_folder.h"
#include "core/train/trainer.h"

#include <chrono>
#include <exception>
#include <string>

namespace gpipe::app {

class RunRecord {
 public:
  /// All must outlive the record. The run's time counts from here.
  RunRecord(const Command& command, const Composition& composition, const RunFolder& folder);

  /// The run ended as it should, or was stopped. FileError when result.json cannot be written.
  void ended(const train::Trainer& trainer, base::ExitCode code);
  /// The run failed; `trainer` is null when it did not come to be. Throws nothing: the error on its way is the one to tell.
  /// The first failure that is told counts.
  void failed(const std::exception_ptr& error, const train::Trainer* trainer) noexcept;

 private:
  nlohmann::json result(base::ExitCode code, const train::Trainer* trainer) const;
  void summary(const nlohmann::json& result) const;

  const Command& command_;
  const Composition& composition_;
  const RunFolder& folder_;
  std::chrono::steady_clock::time_point begin_;
  bool told_ = false;
};

}  // namespace gpipe::app
