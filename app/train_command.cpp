// train: from a configuration to a finished run and its folder.
#include "app/commands.h"
#include "app/observers.h"
#include "app/session.h"
#include "app/signals.h"
#include "app/tables.h"
#include "app/yaml_writer.h"
#include "core/base/text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <cmath>
#include <cstdio>

namespace gpipe::app {
namespace {

nlohmann::json number(double value) { return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(nullptr); }

nlohmann::json evaluation_json(const train::Evaluation& evaluation) {
  return {{"loss", number(evaluation.loss)}, {"accuracy", number(evaluation.accuracy)}, {"samples", evaluation.samples}};
}

/// A run while it runs: everything with its lifetime, in the order of construction.
class Run {
 public:
  Run(const Command& command, std::unique_ptr<Composition> composition)
      : command_(command),
        c_(std::move(composition)),
        folder_(command.resume_from.empty() ? c_->config.output_folder() : command.resume_from,
                command.resume ? RunFolder::Mode::resume : RunFolder::Mode::fresh),
        engine_(*c_->plan),
        data_(c_->data.train,
              train::training_loader(c_->config.data, c_->data.normalization, c_->config.train.batch_size, seed())) {
    if (c_->data.validation)
      validation_ = std::make_unique<train::Loader>(
          c_->data.validation, train::validation_loader(c_->config.data, c_->data.normalization, c_->config.train.batch_size));
  }

  base::ExitCode go() {
    const bool has_classes = c_->data.train->spec().classes > 0;
    std::optional<train::Newest> from;
    if (command_.resume) from = train::find_newest(folder_.checkpoints());
    const train::RunFacts facts = facts_of(*c_, from ? from->checkpoint.run : train::new_run_id());
    train::RunSaver saver(base::real_files(), folder_.checkpoints(), engine_, *c_->optimizer, facts, c_->config.checkpoint);
    train::Trainer trainer(
        {engine_, data_, validation_.get(), *c_->optimizer, *c_->rate, c_->config.train, c_->config.checkpoint, &saver});
    start(trainer, from, facts);
    MetricsFile metrics(folder_, *c_->plan, c_->config.output.log_every);
    trainer.add_observer(metrics);
    Console console(has_classes, trainer.state().step);
    if (!command_.quiet) trainer.add_observer(console);
    const auto begin = std::chrono::steady_clock::now();
    try {
      const train::Ending ending = trainer.run(stop_request());
      console.finish();
      const auto code = ending == train::Ending::finished ? base::ExitCode::ok : base::ExitCode::stopped;
      finish(trainer, begin, code, "");
      return code;
    } catch (const base::Error& error) {
      console.finish();
      finish(trainer, begin, error.exit_code(), error.what());
      throw;
    }
  }

 private:
  uint64_t seed() const { return static_cast<uint64_t>(c_->config.train.seed); }

  /// Fresh parameters, or those of a checkpoint; either way there is one to go on from before the first step.
  void start(train::Trainer& trainer, std::optional<train::Newest>& from, const train::RunFacts& facts) {
    const int64_t swept = train::sweep_temporaries(base::real_files(), folder_.checkpoints());
    if (swept > 0) fmt::print(stderr, "note: removed {} unfinished checkpoint{}\n", swept, swept == 1 ? "" : "s");
    if (from) {
      for (const std::string& skipped : from->skipped) fmt::print(stderr, "warning: skipped {}\n", skipped);
      for (const std::string& warning : from->checkpoint.warnings) fmt::print(stderr, "warning: {}\n", warning);
      for (const std::string& difference : train::differences(from->checkpoint, facts))
        fmt::print(stderr, "warning: {}\n", difference);
      trainer.restore(train::restore_run(engine_, *c_->optimizer, from->checkpoint));
      folder_.rewind_metrics(trainer.state().step);
      if (!command_.quiet)
        fmt::print("going on from {} (step {} of {})\n", from->checkpoint.folder, trainer.state().step, trainer.total_steps());
      if (trainer.state().step >= trainer.total_steps())
        fmt::print("nothing is left to do: the run has its {} steps\n", trainer.total_steps());
      from.reset();
    } else {
      if (base::kind_of(folder_.checkpoints())) base::remove_tree(base::real_files(), folder_.checkpoints());
      trainer.initialise();
      trainer.save();
    }
    folder_.write("plan.json", plan_json(*c_).dump(2) + "\n");
    if (!c_->profile.empty()) folder_.write("profile.json", profile_json(*c_).dump(2) + "\n");
    folder_.write("config.yaml", write_yaml(write_run_config(c_->config)));
  }

  void finish(const train::Trainer& trainer, std::chrono::steady_clock::time_point begin, base::ExitCode code,
              const std::string& message) {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    nlohmann::json result{{"status", base::status_word(code)},
                          {"exit_code", static_cast<int>(code)},
                          {"name", c_->config.name},
                          {"folder", folder_.path()},
                          {"steps", trainer.state().step},
                          {"total_steps", trainer.total_steps()},
                          {"skipped_updates", trainer.skipped_updates()},
                          {"parameters", c_->network->parameter_count()},
                          {"arena_bytes", c_->plan->arena_bytes()},
                          {"seconds", seconds}};
    if (!message.empty()) result["message"] = message;
    if (const auto& last = trainer.last_report()) {
      result["epochs"] = last->last_of_epoch ? last->epoch : last->epoch - 1;
      result["loss"] = number(last->loss);
      result["accuracy"] = number(last->accuracy);
      result["learning_rate"] = last->learning_rate;
    }
    if (const auto& last = trainer.last_validation()) result["validation"] = evaluation_json(*last);
    if (const auto& best = trainer.state().best)
      result["best"] = {{"metric", c_->config.checkpoint.best}, {"value", *best}, {"step", trainer.state().best_step}};
    folder_.write("result.json", result.dump(2) + "\n");
    if (!command_.quiet && code == base::ExitCode::ok) summary(result);
    if (!command_.quiet && code == base::ExitCode::stopped)
      fmt::print("stopped by a signal at step {} of {}, saved; go on with --resume\n", trainer.state().step,
                 trainer.total_steps());
    if (command_.json) fmt::print("{}\n", result.dump());
  }

  void summary(const nlohmann::json& result) const {
    fmt::print("\n{} steps in {}", base::format_count(result["steps"].get<int64_t>()),
               base::format_duration(result["seconds"].get<double>()));
    if (result.contains("validation")) {
      fmt::print("; validation loss {:.4f}",
                 result["validation"]["loss"].is_null() ? NAN : result["validation"]["loss"].get<double>());
      if (c_->data.train->spec().classes > 0)
        fmt::print(", accuracy {:.2f} %", 100.0 * result["validation"]["accuracy"].get<double>());
    }
    if (result.contains("best"))
      fmt::print("; best {} {:.4f} at step {}", c_->config.checkpoint.best, result["best"]["value"].get<double>(),
                 result["best"]["step"].get<int64_t>());
    fmt::print("\nrun folder: {}\n", folder_.path());
  }

  const Command& command_;
  std::unique_ptr<Composition> c_;
  RunFolder folder_;
  pipeline::Engine engine_;
  train::Loader data_;
  std::unique_ptr<train::Loader> validation_;
};

}  // namespace

int run_train(const Command& command, const Catalog& catalog) {
  install_signal_handlers();
  auto composition = open_session(command, catalog);
  if (!command.quiet) {
    fmt::print("training data: {}\n", composition->data.train->describe());
    if (composition->data.validation) fmt::print("validation data: {}\n", composition->data.validation->describe());
    fmt::print("\n{}\n{}{}\n{}", layer_table(*composition->network), stage_table(*composition->plan),
               transfer_words(*composition->plan), batch_words(*composition));
    fmt::print("\n");
  }
  if (command.dry_run) {
    if (command.json) fmt::print("{}\n", plan_json(*composition).dump());
    return 0;
  }
  Run run(command, std::move(composition));
  return static_cast<int>(run.go());
}

}  // namespace gpipe::app
