// Trainer: the loop over mini-batches, from a state to the end of the run.
//
// It owns nothing big: engine, loaders and rules are the caller's. All decisions (validate, save, stop) fall at a mini-batch
// boundary. Observers are told in the order they were added, on the caller's thread. A TrainState and the tensors of the
// engine are all that a run is: whoever restores both goes on bit for bit.
#pragma once

#include "core/pipeline/engine.h"
#include "core/train/loader.h"
#include "core/train/optimizer.h"
#include "core/train/options.h"
#include "core/train/parts.h"
#include "core/train/rate.h"
#include "core/train/transfer.h"

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace gpipe::train {

struct Evaluation {
  double loss = 0;      // mean over the targets
  double accuracy = 0;  // share of hits; 0 where there are no classes
  int64_t samples = 0;
  int64_t targets = 0;  // samples, or tokens that are not ignored
  double seconds = 0;
};

/// Where a run stands, at a mini-batch boundary.
struct TrainState {
  int64_t step = 0;            // mini-batches done
  int64_t updates = 0;         // of these, updates made (a skipped one is not)
  int64_t epoch = 0;           // of the next mini-batch
  int64_t batch = 0;           // index in that epoch of the next mini-batch
  std::optional<double> best;  // of the metric that checkpoint.best names
  int64_t best_step = 0;
  double loss_scale = 0;   // of the next step; 0: none
  int64_t good_steps = 0;  // without overflow since the scale last changed
};

struct StepReport {
  int64_t step = 0;   // counts from 1
  int64_t epoch = 0;  // counts from 1
  int64_t total_steps = 0;
  double loss = 0, accuracy = 0, learning_rate = 0, gradient_norm = 0;
  double auxiliary_loss = 0;  // of auxiliary heads, each times its weight; not in `loss`
  bool updated = true;
  double loss_scale = 0;                                            // of this step; 0: none
  int64_t skipped = 0;                                              // updates left out so far
  double samples_per_second = 0, seconds = 0, seconds_waiting = 0;  // of this step; waiting for data
  double targets_per_second = 0;                                    // samples, or tokens that are not ignored
  std::vector<double> busy_seconds;                                 // by device, of the step
  double bubble = 0;                                                // share of the devices' time in which they waited
  bool last_of_epoch = false;
  std::optional<Evaluation> validation;
};

class TrainObserver {
 public:
  TrainObserver() = default;
  TrainObserver(const TrainObserver&) = delete;
  TrainObserver& operator=(const TrainObserver&) = delete;
  virtual ~TrainObserver() = default;
  virtual void step_done(const StepReport& report) = 0;
  virtual void checkpoint_saved(const std::string& /*folder*/, int64_t /*step*/) {}
};

/// Saves a state; core/train/checkpoint.h knows how. `is_best`: by the metric that the options name.
class CheckpointSaver {
 public:
  CheckpointSaver() = default;
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;
  virtual ~CheckpointSaver() = default;
  /// Returns the folder. Throws FileError; the run ends then, older checkpoints stay.
  virtual std::string save(const TrainState& state) = 0;
};

struct TrainerParts {
  pipeline::Engine& engine;
  Loader& data;
  Loader* validation = nullptr;
  const Optimizer& optimizer;
  const Rate& rate;
  const TrainOptions& options;
  const CheckpointOptions& checkpoint;
  CheckpointSaver* saver = nullptr;
  const std::vector<Part>* parts = nullptr;  // null: all parameters alike
};

enum class Ending { finished, stopped };

class Trainer {
 public:
  explicit Trainer(const TrainerParts& parts);

  void add_observer(TrainObserver& observer) { observers_.push_back(&observer); }
  /// Fresh parameters and slots from the seed, then those of `transfer`, if there is one.
  void initialise(const Transfer* transfer = nullptr);
  /// Saves the state as it is, once.
  void save();
  /// Goes on from `state`; the caller has restored the engine's tensors.
  void restore(const TrainState& state);
  /// To the end, or until `stop` is set, in whatever process: then the state is saved first. Throws DivergedError by the options'
  /// policy.
  Ending run(const std::atomic<int>& stop);

  const TrainState& state() const { return state_; }
  const std::optional<StepReport>& last_report() const { return last_; }
  const std::optional<Evaluation>& last_validation() const { return last_validation_; }
  int64_t total_steps() const;
  size_t arena_bytes() const;  // that the stages hold
  /// Of the whole run, those before a resume included.
  int64_t skipped_updates() const { return state_.step - state_.updates; }

 private:
  void one_step();
  /// After a step; false where it diverged.
  bool move_loss_scale(const pipeline::StepResult& result);
  Evaluation validate();  // of the averages, where the optimizer keeps them
  bool validation_is_due(const StepReport& report) const;
  bool checkpoint_is_due(const StepReport& report) const;
  bool note_best(const StepReport& report, bool checkpoint_is_due);  // true when this is the best so far
  StepReport report_of(const pipeline::StepResult& result, const Batch& batch, double learning_rate) const;

  TrainerParts parts_;
  TrainState state_;
  std::vector<TrainObserver*> observers_;
  std::vector<device::Update> rules_;
  std::vector<bool> decays_;
  std::vector<double> factors_;  // of the learning rate, by parameter
  std::vector<float> results_;   // [N, 2]
  std::optional<StepReport> last_;
  std::optional<Evaluation> last_validation_;
  int64_t saved_step_ = -1;
};

/// One pass over `data` with the running averages. `predictions`: told each mini-batch's [rows, ...] when not null.
struct PredictionSink {
  virtual ~PredictionSink() = default;
  /// False: `values` is null, what the network gave is not copied.
  virtual bool wants_values() const { return true; }
  virtual void predictions(const float* values, int64_t rows, int64_t width, const float* results) = 0;
};
Evaluation evaluate(pipeline::Engine& engine, Loader& data, PredictionSink* sink = nullptr);

}  // namespace gpipe::train
