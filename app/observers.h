// Who watches a training run: the metrics file, and the person at the console.
#pragma once

#include "app/run_folder.h"
#include "core/train/trainer.h"

#include <chrono>
#include <string>
#include <vector>

namespace gpipe::app {

/// A line of metrics.jsonl every `every` steps, and at each validation, epoch end and last step. README.md lists the keys.
class MetricsFile final : public train::TrainObserver {
 public:
  MetricsFile(RunFolder& folder, const pipeline::Plan& plan, const train::SampleSpec& samples, int64_t every)
      : folder_(folder), plan_(plan), tokens_(samples.predicts_tokens()), every_(every) {}
  void step_done(const train::StepReport& report) override;

 private:
  RunFolder& folder_;
  const pipeline::Plan& plan_;
  bool tokens_;
  int64_t every_;
};

/// What the latest steps took, to hold against the prediction. The first step of a process is left out: it warms up.
class StepTimes final : public train::TrainObserver {
 public:
  void step_done(const train::StepReport& report) override;
  size_t steps() const { return seconds_.size(); }
  size_t seen() const { return seen_; }  // the first and those no longer kept too
  double median_seconds() const;         // of a step, waiting for data not counted; 0 when there were none
  double median_bubble() const;

 private:
  static constexpr size_t k_kept = 4096;
  std::vector<double> seconds_, bubbles_;  // a ring
  size_t seen_ = 0;
};

/// One live line on a terminal; elsewhere a plain line now and then, and one at each validation.
class Console final : public train::TrainObserver {
 public:
  Console(const train::SampleSpec& samples, int64_t steps_at_start);
  ~Console() override { finish(); }
  void step_done(const train::StepReport& report) override;
  void checkpoint_saved(const std::string& folder, int64_t step) override;
  /// Ends a live line, so that what follows starts on a line of its own.
  void finish();

 private:
  std::string line(const train::StepReport& report) const;
  std::string speed_text() const;

  bool terminal_;
  bool has_classes_, tokens_;
  bool live_ = false;  // a live line stands unfinished
  int64_t first_step_;
  double speed_ = 0;  // samples or tokens per second, smoothed
  std::chrono::steady_clock::time_point start_, last_;
};

}  // namespace gpipe::app
