#include "app/processes.h"

#include "app/signals.h"
#include "app/yaml_writer.h"
#include "core/base/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace gpipe::app {
namespace {

using nlohmann::json;

constexpr double pipeline::NodeProfile::*k_times[] = {&pipeline::NodeProfile::forward, &pipeline::NodeProfile::backward_input,
                                                      &pipeline::NodeProfile::backward_weight, &pipeline::NodeProfile::pack,
                                                      &pipeline::NodeProfile::update};
constexpr int64_t pipeline::NodeProfile::*k_bytes[] = {&pipeline::NodeProfile::kept_bytes, &pipeline::NodeProfile::output_bytes};

/// Takes part in a save; process 0 writes it.
class Onlooker final : public train::CheckpointSaver {
 public:
  explicit Onlooker(pipeline::Engine& engine) : engine_(engine) {}
  std::string save(const train::TrainState&) override {
    engine_.fetch();
    return "";
  }

 private:
  pipeline::Engine& engine_;
};

}  // namespace

void require_shared_run(const Command& command, const RunConfig& config, device::Peers& peers) {
  const std::string settings = fmt::format("{} {} {} {} {}\n{}", GPIPE_VERSION, command.resume, command.dry_run, command.profile,
                                           command.profile_from, write_yaml(write_run_config(config)));
  const std::string first = peers.broadcast(settings);
  if (peers.any(first != settings))
    throw base::ConfigError(
        "the processes were given different settings; program, configuration and flags must be the same for all");
  const int64_t devices = config.pipeline.partitions;
  if (config.pipeline.search)
    throw base::ConfigError("pipeline.search chooses for one process, this run has {}; {}", peers.size(),
                            command.resume ? "a run that goes on has chosen: give the config.yaml of its folder"
                                           : "run gpipe-train plan --search on its own and take the lines that it prints");
  if (devices < peers.size())
    throw base::ConfigError(
        "pipeline.partitions: {} for {} processes, which share the pipeline's devices; give at least one each, or start fewer",
        devices, peers.size());
  if (command.trace > 0) throw base::ConfigError("--trace records the stages of one process, this run has {}", peers.size());
}

void tell_findings(const Composition& c, device::Peers& peers) {
  json profile = json::array();
  for (const pipeline::NodeProfile& node : c.profile) {
    json row = json::array();
    for (const auto time : k_times) row.push_back(node.*time);
    for (const auto bytes : k_bytes) row.push_back(node.*bytes);
    profile.push_back(std::move(row));
  }
  peers.broadcast(json{{"peaks", {c.peaks.convolution_flops, c.peaks.linear_flops, c.peaks.memory_bytes}},
                       {"device_memory", c.plan->devices.own_memory},
                       {"profile", std::move(profile)},
                       {"algorithms", c.config.pipeline.algorithms->choices()}}
                      .dump());
}

Findings hear_findings(device::Peers& peers) {
  const json told = json::parse(peers.broadcast(std::string()));
  Findings found;
  found.peaks = {told["peaks"][0], told["peaks"][1], told["peaks"][2]};
  found.device_memory = told["device_memory"];
  for (const json& row : told["profile"]) {
    pipeline::NodeProfile& node = found.profile.emplace_back();
    size_t next = 0;
    for (const auto time : k_times) node.*time = row[next++];
    for (const auto bytes : k_bytes) node.*bytes = row[next++];
  }
  found.algorithms = told["algorithms"].get<device::Algorithms::Choices>();
  return found;
}

bool have_cores_apart(device::Peers& peers) {
  const std::string mine = fmt::format("{}", fmt::join(pipeline::own_cores(), ","));
  return peers.any(peers.broadcast(mine) != mine);
}

void check_same_plan(const pipeline::Plan& plan, int64_t samples, device::Peers& peers) {
  json mine{{"boundaries", plan.boundaries}, {"samples", samples}};
  for (const pipeline::EdgePlan& edge : plan.edges)
    mine["edges"].push_back({edge.value, edge.gradient, edge.from, edge.to, edge.slots, edge.slot_bytes});
  for (const pipeline::StagePlan& stage : plan.stages) mine["bytes"].push_back(stage.memory.total());
  for (const graph::Node& node : plan.network.nodes) mine["nodes"].push_back(node.name);
  const std::string first = peers.broadcast(mine.dump());
  if (peers.any(first != mine.dump()))
    throw base::ConfigError(
        "the processes come to different plans; program and data must be the same on all machines, and the devices of one kind");
}

void tell_failure(device::Peers* peers) noexcept {
  if (peers == nullptr) return;
  const base::Failure failure = base::failure_of(std::current_exception());
  peers->give_up(failure.code, failure.message);
}

base::ExitCode follow(const Command& command, const Composition& c, const train::Transfer* transfer) {
  device::Peers& peers = *c.config.pipeline.peers;
  pipeline::Engine engine(*c.plan);
  train::Loader data(c.data.train, train::training_loader(c.config.data, c.data.normalization, c.config.train.batch_size,
                                                          static_cast<uint64_t>(c.config.train.seed)));
  std::optional<train::Loader> validation;
  if (c.data.validation)
    validation.emplace(c.data.validation,
                       train::validation_loader(c.config.data, c.data.normalization, c.config.train.batch_size));
  Onlooker saver(engine);
  train::Trainer trainer({engine, data, validation ? &*validation : nullptr, *c.optimizer, *c.rate, c.config.train,
                          c.config.checkpoint, &saver, &c.parts});
  try {
    if (command.resume) {
      trainer.restore(train::restore_run(engine, *c.optimizer, train::load_checkpoint(peers.broadcast(std::string()))));
    } else {
      trainer.initialise(transfer);
      trainer.save();
    }
    return trainer.run(stop_request()) == train::Ending::finished ? base::ExitCode::ok : base::ExitCode::stopped;
  } catch (...) {
    tell_failure(&peers);
    throw;
  }
}

}  // namespace gpipe::app
