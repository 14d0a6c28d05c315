#include "core/train/trainer.h"

#include "core/base/error.h"
#include "core/graph/init.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

namespace gpipe::train {
namespace {

double seconds_between(std::chrono::steady_clock::time_point from) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
}

/// Is `value` an improvement of a metric of this name?
bool improves(const std::string& metric, double value, const std::optional<double>& best) {
  if (!std::isfinite(value)) return false;
  if (!best) return true;
  return metric.ends_with("accuracy") ? value > *best : value < *best;
}

}  // namespace

Trainer::Trainer(const TrainerParts& parts) : parts_(parts) {
  rules_.resize(parts_.engine.parameter_count());
  for (size_t i = 0; i < rules_.size(); ++i)
    decays_.push_back(parts_.options.decay_norms_and_biases || parts_.engine.tensors()[i]->spec->decays);
  for (size_t i = 0; i < rules_.size(); ++i) {
    const Part* part = parts_.parts != nullptr ? part_of(*parts_.parts, parts_.engine.tensors()[i]->name) : nullptr;
    factors_.push_back(part != nullptr ? part->learning_rate : 1);
  }
  const pipeline::Plan& plan = parts_.engine.plan();
  results_.resize(static_cast<size_t>(2 * plan.micro_batches.mini_batch * plan.network.loss_count()));
}

int64_t Trainer::total_steps() const {
  return parts_.options.steps > 0 ? parts_.options.steps : parts_.options.epochs * parts_.data.batches_per_epoch();
}

void Trainer::initialise(const Transfer* transfer) {
  for (pipeline::StateTensor* tensor : parts_.engine.tensors()) {
    if (tensor->spec == nullptr || !tensor->value) continue;
    const auto values = std::span(tensor->value.f32(), static_cast<size_t>(tensor->value.elements()));
    graph::initialise(*tensor->spec, tensor->name, static_cast<uint64_t>(parts_.options.seed), values);
    for (size_t slot = 0; slot < tensor->slots.size(); ++slot)
      std::fill_n(tensor->slots[slot].f32(), tensor->slots[slot].elements(), parts_.optimizer.initial(slot));
  }
  if (transfer != nullptr) transfer->write(parts_.engine);
  for (pipeline::StateTensor* tensor : parts_.engine.tensors())
    if (tensor->spec != nullptr && tensor->value && parts_.optimizer.averages())
      std::copy_n(tensor->value.f32(), tensor->value.elements(), tensor->slots.back().f32());
  parts_.engine.pack();
  state_ = {};
  state_.loss_scale = parts_.options.loss_scale;
}

void Trainer::restore(const TrainState& state) {
  state_ = state;
  saved_step_ = state.step;
  if ((state_.loss_scale > 0) != (parts_.options.loss_scale > 0)) state_.loss_scale = parts_.options.loss_scale;
  if (state_.batch < parts_.data.batches_per_epoch()) return;
  // Mini-batches may be larger now, so that the epoch has fewer: it is over then.
  state_.epoch += 1;
  state_.batch = 0;
}

Ending Trainer::run(const std::atomic<int>& stop) {
  const int64_t total = total_steps();
  parts_.data.start(state_.epoch, state_.batch);
  while (state_.step < total) {
    if (parts_.engine.any(stop.load(std::memory_order_relaxed) != 0)) {
      save();
      return Ending::stopped;
    }
    one_step();
  }
  if (parts_.checkpoint.final_save) save();
  return Ending::finished;
}

size_t Trainer::arena_bytes() const {
  size_t sum = 0;
  for (size_t stage = 0; stage < parts_.engine.plan().stages.size(); ++stage)
    sum += parts_.engine.arena_bytes(static_cast<int>(stage));
  return sum;
}

StepReport Trainer::report_of(const pipeline::StepResult& result, const Batch& batch, double learning_rate) const {
  StepReport report;
  report.step = state_.step + 1;
  report.epoch = batch.epoch + 1;
  report.total_steps = total_steps();
  report.loss = result.loss;
  report.auxiliary_loss = result.auxiliary_loss;
  report.accuracy = static_cast<double>(result.hits) / static_cast<double>(batch.targets);
  report.learning_rate = learning_rate;
  report.gradient_norm = result.gradient_norm;
  report.updated = result.finite;
  report.seconds = result.seconds + batch.seconds_waited;
  report.seconds_waiting = batch.seconds_waited;
  report.samples_per_second = static_cast<double>(batch.samples) / report.seconds;
  report.targets_per_second = static_cast<double>(batch.targets) / report.seconds;
  const std::span<const double> worked = parts_.engine.busy_seconds();
  report.busy_seconds.assign(worked.begin(), worked.end());  // a validation will overwrite them
  const double busy = std::accumulate(report.busy_seconds.begin(), report.busy_seconds.end(), 0.0);
  report.bubble = 1.0 - busy / (result.seconds * static_cast<double>(report.busy_seconds.size()));
  report.last_of_epoch = batch.last_of_epoch;
  return report;
}

void Trainer::one_step() {
  const Batch& batch = parts_.data.next();
  const double learning_rate = learning_rate_at(parts_.rate, parts_.options.learning_rate, parts_.options.warmup_steps,
                                                state_.step, total_steps(), parts_.data.batches_per_epoch());
  for (size_t i = 0; i < rules_.size(); ++i)
    rules_[i] = parts_.optimizer.rule(state_.updates, learning_rate * factors_[i], decays_[i]);
  const double loss_scale = state_.loss_scale;
  pipeline::MiniBatch mini{batch.input.data,
                           batch.target.data,
                           results_.data(),
                           nullptr,
                           batch.samples,
                           batch.targets,
                           static_cast<double>(state_.step) / static_cast<double>(total_steps()),
                           loss_scale > 0 ? loss_scale : 1,
                           state_.step,
                           static_cast<uint64_t>(parts_.options.seed),
                           nullptr,
                           batch.bucket};
  const pipeline::StepResult result = parts_.engine.train(mini, rules_, parts_.options.clip_norm);
  StepReport report = report_of(result, batch, learning_rate);
  if (!move_loss_scale(result) && parts_.options.on_divergence == "stop")
    throw base::DivergedError(
        "step {}: loss is {}, gradient norm {} at learning rate {:g}; nothing was updated. Try a lower train.learning_rate, "
        "train.warmup_steps or "
        "train.clip_norm; train.on_divergence: skip goes on without such updates",
        report.step, result.loss, result.gradient_norm, learning_rate);
  state_.step += 1;
  state_.updates += result.finite ? 1 : 0;
  report.loss_scale = loss_scale;
  report.skipped = state_.step - state_.updates;
  state_.epoch = batch.last_of_epoch ? batch.epoch + 1 : batch.epoch;
  state_.batch = batch.last_of_epoch ? 0 : batch.index + 1;
  if (validation_is_due(report)) last_validation_ = report.validation = validate();
  const bool due = checkpoint_is_due(report);
  const bool best = note_best(report, due);
  last_ = report;
  for (TrainObserver* observer : observers_) observer->step_done(report);
  if (due || best) save();
}

bool Trainer::move_loss_scale(const pipeline::StepResult& result) {
  double& scale = state_.loss_scale;
  if (result.finite) {
    if (scale > 0 && ++state_.good_steps >= parts_.options.loss_scale_growth) {
      scale *= 2;
      state_.good_steps = 0;
    }
    return true;
  }
  // A loss that is not finite is no matter of scale.
  if (scale <= 1 || !std::isfinite(result.loss) || !std::isfinite(result.auxiliary_loss)) return false;
  scale /= 2;
  state_.good_steps = 0;
  return true;
}

Evaluation Trainer::validate() {
  const bool averages = parts_.optimizer.averages();
  if (averages) parts_.engine.swap_averages();
  const Evaluation evaluation = evaluate(parts_.engine, *parts_.validation);
  if (averages) parts_.engine.swap_averages();
  return evaluation;
}

bool Trainer::validation_is_due(const StepReport& report) const {
  if (parts_.validation == nullptr) return false;
  if (report.step == report.total_steps) return true;
  const int64_t every = parts_.options.validate_every;
  return every > 0 ? report.step % every == 0 : report.last_of_epoch;
}

bool Trainer::checkpoint_is_due(const StepReport& report) const {
  const CheckpointOptions& options = parts_.checkpoint;
  if (options.every_steps > 0 && report.step % options.every_steps == 0) return true;
  return options.every_epochs > 0 && report.last_of_epoch && report.epoch % options.every_epochs == 0;
}

bool Trainer::note_best(const StepReport& report, bool checkpoint_is_due) {
  const std::string& metric = parts_.checkpoint.best;
  if (metric.empty()) return false;
  std::optional<double> value;
  // A metric of every step counts where a checkpoint falls anyway: the best one must be there to load.
  if (checkpoint_is_due && metric == "loss") value = report.loss;
  if (checkpoint_is_due && metric == "accuracy") value = report.accuracy;
  if (report.validation && metric == "validation_loss") value = report.validation->loss;
  if (report.validation && metric == "validation_accuracy") value = report.validation->accuracy;
  if (!value || !improves(metric, *value, state_.best)) return false;
  state_.best = value;
  state_.best_step = report.step;
  return true;
}

void Trainer::save() {
  if (parts_.saver == nullptr || saved_step_ == state_.step) return;
  saved_step_ = state_.step;
  const std::string folder = parts_.saver->save(state_);
  for (TrainObserver* observer : observers_) observer->checkpoint_saved(folder, state_.step);
}

Evaluation evaluate(pipeline::Engine& engine, Loader& data, PredictionSink* sink) {
  const auto start = std::chrono::steady_clock::now();
  const pipeline::Plan& plan = engine.plan();
  const int64_t rows = plan.micro_batches.mini_batch;
  const int64_t width = plan.network.values[static_cast<size_t>(plan.network.prediction)].shape.elements();
  std::vector<float> results(static_cast<size_t>(2 * rows));
  const bool values = sink != nullptr && sink->wants_values();
  std::vector<float> predictions(values ? static_cast<size_t>(rows * width) : 0);
  Evaluation sum;
  double loss = 0;
  double hits = 0;
  data.start(0, 0);
  for (bool last = false; !last;) {
    const Batch& batch = data.next();
    last = batch.last_of_epoch;
    pipeline::MiniBatch mini{batch.input.data, batch.target.data, results.data(), nullptr, batch.samples, batch.targets};
    mini.bucket = batch.bucket;
    if (values) mini.predictions = predictions.data();
    engine.evaluate(mini);
    for (int64_t i = 0; i < batch.samples; ++i) {
      loss += static_cast<double>(results[static_cast<size_t>(2 * i)]);
      hits += static_cast<double>(results[static_cast<size_t>(2 * i + 1)]);
    }
    sum.samples += batch.samples;
    sum.targets += batch.targets;
    if (sink == nullptr) continue;
    GP_CHECK(batch.bucket == 0);  // the sink has no place for another width
    sink->predictions(mini.predictions, batch.samples, width, results.data());
  }
  data.stop();
  sum.loss = loss / static_cast<double>(sum.targets);
  sum.accuracy = hits / static_cast<double>(sum.targets);
  sum.seconds = seconds_between(start);
  return sum;
}

}  // namespace gpipe::train
