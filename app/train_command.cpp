// train: from a configuration to a finished run and its folder.
#include "app/changed_settings.h"
#include "app/commands.h"
#include "app/observers.h"
#include "app/plan_page.h"
#include "app/processes.h"
#include "app/run_record.h"
#include "app/session.h"
#include "app/signals.h"
#include "app/tables.h"
#include "app/trace_writer.h"
#include "app/yaml_writer.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <exception>

namespace gpipe::app {
namespace {

/// A run while it runs: everything with its lifetime, in the order of construction.
class Run {
 public:
  Run(const Command& command, const Catalog& catalog, const Composition& composition, const PlanPage& page, RunFolder& folder)
      : command_(command),
        catalog_(catalog),
        c_(&composition),
        page_(page),
        folder_(folder),
        engine_(*c_->plan),
        data_(c_->data.train,
              train::training_loader(c_->config.data, c_->data.normalization, c_->config.train.batch_size, seed())) {
    if (c_->data.validation)
      validation_ = std::make_unique<train::Loader>(
          c_->data.validation, train::validation_loader(c_->config.data, c_->data.normalization, c_->config.train.batch_size));
  }

  base::ExitCode go(RunRecord& record, const train::Transfer* transfer) {
    std::optional<train::Newest> from;
    if (command_.resume) from = train::find_newest(folder_.checkpoints());
    if (from && c_->config.pipeline.peers) c_->config.pipeline.peers->broadcast(from->checkpoint.folder);
    const train::RunFacts facts = facts_of(*c_, from ? from->checkpoint.run : train::new_run_id());
    train::RunSaver saver(base::real_files(), folder_.checkpoints(), engine_, *c_->optimizer, facts, c_->config.checkpoint);
    train::Trainer trainer({engine_, data_, validation_.get(), *c_->optimizer, *c_->rate, c_->config.train, c_->config.checkpoint,
                            &saver, &c_->parts});
    try {
      start(trainer, from, facts, transfer);
      MetricsFile metrics(folder_, *c_->plan, c_->data.train->spec(), c_->config.output.log_every);
      trainer.add_observer(metrics);
      StepTimes times;
      trainer.add_observer(times);
      std::optional<TraceWriter> trace;
      if (command_.trace > 0) {
        const int64_t done = trainer.state().step;
        trace.emplace(folder_, engine_, c_->config.name, traced_steps(done, trainer.total_steps(), command_.trace), done);
        trainer.add_observer(*trace);
      }
      Console console(c_->data.train->spec(), trainer.state().step);
      if (!command_.quiet) trainer.add_observer(console);
      const train::Ending ending = trainer.run(stop_request());
      const auto code = ending == train::Ending::finished ? base::ExitCode::ok : base::ExitCode::stopped;
      console.finish();
      if (trace) trace->finish();
      if (trace && !command_.quiet) fmt::print("{}", trace->summary());
      record.ended(trainer, times, code);
      return code;
    } catch (...) {
      tell_failure(c_->config.pipeline.peers.get());
      record.failed(std::current_exception(), &trainer);
      throw;
    }
  }

 private:
  uint64_t seed() const { return static_cast<uint64_t>(c_->config.train.seed); }

  /// Fresh parameters, or those of a checkpoint; either way there is one to go on from before the first step.
  void start(train::Trainer& trainer, std::optional<train::Newest>& from, const train::RunFacts& facts,
             const train::Transfer* transfer) {
    const int64_t swept = train::sweep_temporaries(base::real_files(), folder_.checkpoints());
    if (swept > 0) fmt::print(stderr, "note: removed {} unfinished checkpoint{}\n", swept, swept == 1 ? "" : "s");
    if (from) {
      for (const std::string& skipped : from->skipped) fmt::print(stderr, "warning: skipped {}\n", skipped);
      for (const std::string& warning : from->checkpoint.warnings) fmt::print(stderr, "warning: {}\n", warning);
      train::check_kinds(from->checkpoint, facts);
      tell_changes(from->checkpoint.state.value("device", facts.device), facts.device);
      trainer.restore(train::restore_run(engine_, *c_->optimizer, from->checkpoint));
      folder_.rewind_metrics(trainer.state().step);
      if (!command_.quiet)
        fmt::print("going on from {} (step {} of {})\n", from->checkpoint.folder, trainer.state().step, trainer.total_steps());
      if (!command_.quiet && trainer.state().step >= trainer.total_steps())
        fmt::print("nothing is left to do: the run has its {} steps\n", trainer.total_steps());
      from.reset();
    } else {
      trainer.initialise(transfer);
      trainer.save();
    }
    folder_.write("plan.json", page_.json().dump(2) + "\n");
    if (!c_->profile.empty()) folder_.write("profile.json", to_json(profile_file(*c_)).dump(2) + "\n");
    RunConfig config = c_->config;
    config.output.folder = folder_.path();  // so that eval and --resume find this run by the file that lies in it
    folder_.write("config.yaml", write_yaml(write_run_config(config)));
  }

  /// A resumed run takes its settings from the configuration it is given, which need not be the one it had.
  void tell_changes(const std::string& device_before, const std::string& device_now) const {
    const std::string file = folder_.path() + "/config.yaml";
    std::vector<std::string> changes;
    try {
      changes = changed_settings(write_run_config(load_run_config(file, {}, catalog_)), write_run_config(c_->config));
    } catch (const base::Error& error) {
      fmt::print(stderr, "warning: what the run was started with cannot be compared with what it is now: {}\n", error.what());
      return;
    }
    if (device_before != device_now) changes.push_back(fmt::format("the device was {} and is {} now", device_before, device_now));
    for (const std::string& change : changes) fmt::print(stderr, "warning: {}\n", change);
    if (!changes.empty())
      fmt::print(stderr, "warning: the run goes on from its checkpoint, but not to the weights that it would have come to\n");
  }

  const Command& command_;
  const Catalog& catalog_;
  const Composition* c_;
  const PlanPage& page_;
  RunFolder& folder_;
  pipeline::Engine engine_;
  train::Loader data_;
  std::unique_ptr<train::Loader> validation_;
};

/// The run of one process, or of process 0 of several.
int lead(const Command& command, const Catalog& catalog, const Composition& composition, const PlanPage& page,
         const train::Transfer* transfer) {
  RunFolder folder(command.resume_from.empty() ? composition.config.output_folder() : command.resume_from,
                   command.resume ? RunFolder::Mode::resume : RunFolder::Mode::fresh);
  RunRecord record(command, composition, page, folder);
  try {
    Run run(command, catalog, composition, page, folder);
    return static_cast<int>(run.go(record, transfer));
  } catch (...) {
    record.failed(std::current_exception(), nullptr);
    throw;
  }
}

int train_in(const Command& command, const Catalog& catalog, const std::shared_ptr<device::Peers>& peers) {
  auto composition = open_session(command, catalog, peers);
  const bool leads = !peers || peers->rank() == 0;
  const PlanPage page(*composition);
  require_fit(*composition->plan);
  if (!command.quiet && leads) {
    fmt::print("training data: {}\n", composition->data.train->describe());
    if (composition->data.validation) fmt::print("validation data: {}\n", composition->data.validation->describe());
    fmt::print("\n{}\n{}\n", layer_table(*composition->network), page.text());
  }
  if (command.dry_run) {
    if (command.json && leads) fmt::print("{}\n", page.json().dump());
    return 0;
  }
  std::optional<train::Transfer> transfer;
  if (composition->init_from && !command.resume) {
    transfer.emplace(*composition->init_from, *composition->network);
    if (!command.quiet && leads) fmt::print("starting from {}\n", transfer->summary());
  }
  const train::Transfer* start = transfer ? &*transfer : nullptr;
  return leads ? lead(command, catalog, *composition, page, start) : static_cast<int>(follow(command, *composition, start));
}

}  // namespace

int run_train(const Command& command, const Catalog& catalog) {
  install_signal_handlers();
  const std::shared_ptr<device::Peers> peers = device::open_peers(pipeline::PipelineOptions{}.transfer_timeout);
  try {
    return train_in(command, catalog, peers);
  } catch (...) {
    tell_failure(peers.get());
    if (!peers || peers->rank() == 0) throw;
    return static_cast<int>(base::failure_of(std::current_exception()).code);  // process 0 was told, and says it
  }
}

}  // namespace gpipe::app
