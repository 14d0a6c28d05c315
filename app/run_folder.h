// RunFolder: what a run leaves behind. One process holds it at a time (flock on `.lock`, which goes with the process).
//
//   config.yaml      the merged configuration, itself runnable
//   plan.json        partition, memory, transfers
//   metrics.jsonl    one object a line, appended; a step never stands twice
//   result.json      written at the end, whatever the end
//   trace.json, timeline.svg   of --trace: the real timeline of some steps
//   checkpoints/     see core/train/checkpoint.h
#pragma once

#include "core/base/files.h"

#include <nlohmann/json.hpp>

#include <string>

namespace gpipe::app {

class RunFolder {
 public:
  enum class Mode { fresh, resume };

  /// Makes and locks the folder. FileError when it cannot be made, holds a run already (fresh), or another process has it;
  /// CheckpointError when there is nothing to resume. What a start left that never came to its config.yaml is no run.
  RunFolder(std::string path, Mode mode);
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;
  ~RunFolder();

  const std::string& path() const { return path_; }
  std::string checkpoints() const { return path_ + "/checkpoints"; }
  void write(const std::string& name, const std::string& text) const;  // atomically
  /// Drops metrics of steps after `step` and a torn last line, so that a resumed run writes them anew.
  void rewind_metrics(int64_t step);
  /// Appends a line and hands it to the kernel at once.
  void append_metrics(const nlohmann::json& line);
  /// The last line of metrics.jsonl, and the last with a validation, as appended or found by rewind_metrics; null: none.
  const nlohmann::json& last_metrics() const { return last_metrics_; }
  const nlohmann::json& last_validation() const { return last_validation_; }

 private:
  std::string path_;
  int lock_ = -1;
  int metrics_ = -1;
  nlohmann::json last_metrics_, last_validation_;
};

}  // namespace gpipe::app
