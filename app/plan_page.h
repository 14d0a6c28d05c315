// The page that a person reads before a run: stages with time and memory, what is sent, how fast, what to change. Pure, but
// for planning the changes that it proposes.
#pragma once

#include "app/compose.h"
#include "core/pipeline/predict.h"
#include "core/pipeline/timeline.h"

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <vector>

namespace gpipe::app {

class PlanPage {
 public:
  /// Simulates the composition's plan; both must outlive the page.
  explicit PlanPage(const Composition& composition);

  /// Stage table, memory by kind, transfers, the batch in words, time and bubble, warnings.
  std::string text() const;
  /// All of it, as plan.json has it. Memory in bytes, times in seconds.
  nlohmann::json json() const;

  const pipeline::Prediction& prediction() const { return prediction_; }
  /// Sentences: what holds this plan back and what would help, and whether it fits.
  const std::vector<std::string>& warnings() const { return warnings_; }
  /// As simulated, but no less than the cores of this machine need for all work; with buckets the mean of an epoch's steps.
  double step_seconds() const;
  /// The step that half of an epoch's steps take no longer than; without buckets all take the same.
  double median_step_seconds() const;
  double samples_per_second() const;
  /// The simulated step, for text_of and svg_of.
  pipeline::Timeline timeline() const;

 private:
  struct Bucket {
    train::BucketShape shape;
    int64_t batches = 0;  // of an epoch
    double step_seconds = 0;
  };
  void plan_buckets();
  double share(const Bucket& bucket) const;  // of the batches
  std::string bucket_table() const;
  nlohmann::json buckets_json() const;
  std::string stage_table() const;
  std::string memory_table() const;
  std::string transfer_words() const;
  std::string speed_words() const;
  nlohmann::json stage_json(size_t stage) const;

  const Composition& c_;
  const pipeline::Plan& plan_;
  pipeline::Prediction prediction_;  // of the widest bucket
  std::vector<Bucket> buckets_;      // widest first; empty when there is but one
  std::vector<std::string> warnings_;
};

/// The `pipeline:` section of a configuration that makes a run as `options` say, in YAML.
std::string pipeline_yaml(const pipeline::PipelineOptions& options);

/// MemoryError (exit 4) with the first change that would make it fit, when a device of the plan exceeds its limit.
void require_fit(const pipeline::Plan& plan);

}  // namespace gpipe::app
