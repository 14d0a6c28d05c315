#include "app/session.h"

#include "app/plan_search.h"
#include "app/processes.h"
#include "core/base/scalar.h"
#include "core/base/text.h"
#include "core/graph/init.h"
#include "core/pipeline/profile.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <ctime>

namespace gpipe::app {

namespace {

std::string run_folder(const Command& command, const RunConfig& config) {
  return command.resume_from.empty() ? config.output_folder() : command.resume_from;
}

/// A run goes on with the pipeline that its search chose, whatever another search would say now.
pipeline::PipelineOptions chosen_before(const Command& command, const Composition& c, const Catalog& catalog) {
  const std::string folder = run_folder(command, c.config);
  pipeline::PipelineOptions options = load_run_config(folder + "/config.yaml", {}, catalog).pipeline;
  options.precision = c.config.pipeline.precision;
  options.algorithms = c.config.pipeline.algorithms;
  return options;
}

/// What a run that goes on or is looked at has chosen; before it, what a profile has.
device::Algorithms::Choices known_algorithms(const Command& command, const RunConfig& config, const ProfileFile& profile) {
  device::Algorithms::Choices known = profile.algorithms;
  if (!command.resume && command.verb != "eval" && command.verb != "predict") return known;
  const std::string folder = command.checkpoint.empty() ? run_folder(command, config) + "/checkpoints" : command.checkpoint;
  const nlohmann::json state = command.checkpoint.empty() ? train::newest_state(folder) : train::load_state(folder);
  for (const auto& [key, choice] : train::saved_algorithms(state, folder)) known[key] = choice;
  return known;
}

/// Of process 0, or the only one.
std::unique_ptr<Composition> lead(const Command& command, const Catalog& catalog, RunConfig config) {
  const bool measured = command.profile || !command.profile_from.empty();
  ProfileFile profile;
  if (!command.profile_from.empty()) profile = read_profile_file(command.profile_from);
  using device::Algorithms;
  config.pipeline.algorithms =
      std::make_shared<Algorithms>(command.profile ? Algorithms::Rule::measured : Algorithms::Rule::suggested,
                                   config.train.deterministic, known_algorithms(command, config, profile));
  const size_t known = config.pipeline.algorithms->choices().size();
  auto composition = compose(std::move(config), !measured && (command.verb == "plan" || command.verb == "train"));
  for (const std::string& warning : composition->warnings) fmt::print(stderr, "warning: {}\n", warning);
  Composition& c = *composition;
  if (command.search) return composition;
  const bool has_run = (command.verb == "eval" || command.verb == "predict" || command.resume) && c.config.pipeline.search;
  if (c.config.pipeline.search && !has_run) {
    if (!command.profile_from.empty())
      throw base::ConfigError(
          "pipeline: a search wants times for every number of micro-batches, and --profile-from has those of "
          "one; --profile measures them all");
    take_best(c, search_pipeline(c, command.profile));
    return composition;
  }
  if (has_run) c.config.pipeline = chosen_before(command, c, catalog);
  if (c.plan == nullptr) c.plan = plan_with(c, c.config.pipeline);
  if (!measured) return composition;
  if (command.profile)
    take_measured(c, profile_nodes(c, c.config.pipeline));
  else
    take_profile(c, std::move(profile), command.profile_from);
  if (const size_t anew = c.config.pipeline.algorithms->choices().size() - known; !command.profile && anew > 0)
    fmt::print(stderr, "warning: {} has no choice for {} of the algorithms here, the library's suggestions are taken for them\n",
               command.profile_from, anew);
  c.plan = plan_with(c, c.config.pipeline);
  return composition;
}

/// Of another one: with what process 0 found.
std::unique_ptr<Composition> compose_as_told(RunConfig config, device::Peers& peers) {
  Findings found = hear_findings(peers);
  config.pipeline.device_memory = found.device_memory;
  config.pipeline.algorithms = std::make_shared<device::Algorithms>(device::Algorithms::Rule::suggested,
                                                                    config.train.deterministic, std::move(found.algorithms));
  auto composition = compose(std::move(config), false);
  composition->peaks = found.peaks;
  composition->profile = std::move(found.profile);
  composition->plan = plan_with(*composition, composition->config.pipeline);
  return composition;
}

}  // namespace

std::unique_ptr<Composition> open_session(const Command& command, const Catalog& catalog,
                                          const std::shared_ptr<device::Peers>& peers) {
  RunConfig config = load_run_config(command.config_file, command.overrides, catalog);
  if (!peers) return lead(command, catalog, std::move(config));
  require_shared_run(command, config, *peers);
  peers->set_timeout(config.pipeline.transfer_timeout);
  config.pipeline.peers = peers;
  config.pipeline.cores_apart = have_cores_apart(*peers);
  const bool leads = peers->rank() == 0;
  auto composition = leads ? lead(command, catalog, std::move(config)) : compose_as_told(std::move(config), *peers);
  if (leads) tell_findings(*composition, *peers);
  check_same_plan(*composition->plan, composition->data.train->size(), *peers);
  return composition;
}

pipeline::PipelineOptions unpiped(pipeline::PipelineOptions options) {
  options.peers = nullptr;
  options.partitions = 1;
  options.balance = {};
  options.speeds = {};
  options.devices = {};
  options.memory_limit = {};
  options.schedule = "gpipe";
  options.chunks = 0;
  options.rematerialize = pipeline::Rematerialize::none;
  return options;
}

namespace {

train::LoaderOptions first_batch_loader(const Composition& c, bool buckets) {
  train::LoaderOptions options = train::training_loader(c.config.data, c.data.normalization, c.config.train.batch_size,
                                                        static_cast<uint64_t>(c.config.train.seed));
  options.buckets = buckets;
  return options;
}

/// Index of the first mini-batch of a bucket that has some.
int64_t first_of(const Composition& c, int bucket) {
  train::EpochOrder order = training_order(c);
  order.begin(static_cast<uint64_t>(c.config.train.seed), 0, c.config.data.shuffle);
  int64_t index = 0;
  while (order.batch(index).bucket != bucket) ++index;
  return index;
}

}  // namespace

FirstBatch::FirstBatch(const Composition& c, std::optional<int> bucket)
    : loader_(c.data.train, first_batch_loader(c, bucket.has_value())),
      batch_((loader_.start(0, bucket ? first_of(c, *bucket) : 0), loader_.next())),
      results_(static_cast<size_t>(2 * c.network->loss_count() * c.config.train.batch_size)),
      seed_(static_cast<uint64_t>(c.config.train.seed)) {}

pipeline::MiniBatch FirstBatch::view() {
  pipeline::MiniBatch batch;
  batch.input = batch_.input.data;
  batch.target = batch_.target.data;
  batch.results = results_.data();
  batch.samples = batch_.samples;
  batch.targets = batch_.targets;
  batch.bucket = batch_.bucket;
  batch.seed = seed_;
  return batch;
}

std::vector<pipeline::NodeProfile> profile_nodes(const Composition& c, const pipeline::PipelineOptions& as_run) {
  pipeline::PipelineOptions options = unpiped(as_run);
  const pipeline::ProfileBatch size =
      pipeline::profile_batch(pipeline::MicroBatches(c.config.train.batch_size, as_run.micro_batches));
  options.micro_batches = size.micro_batches;
  const auto plan = pipeline::make_plan(*c.network, {options, size.samples, static_cast<int>(c.optimizer->slots().size()), {}});
  pipeline::Engine engine(*plan);
  for (pipeline::StateTensor* tensor : engine.tensors())
    if (tensor->spec != nullptr)
      graph::initialise(*tensor->spec, tensor->name, static_cast<uint64_t>(c.config.train.seed),
                        std::span(tensor->value.f32(), static_cast<size_t>(tensor->value.elements())));
  engine.pack();
  FirstBatch batch(c, std::nullopt);
  pipeline::MiniBatch mini = batch.view();
  mini.samples = 0;  // rows that only fill up the data's last mini-batch take as long as others
  return pipeline::measure_nodes(engine, mini, {});
}

void take_measured(Composition& c, std::vector<pipeline::NodeProfile> measured) {
  c.profile = std::move(measured);
  c.costs_from = "measured here, on one stage";
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  c.profile_date = fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday,
                               utc.tm_hour, utc.tm_min, utc.tm_sec);
}

ProfileFile profile_file(const Composition& c) {
  const device::DeviceInfo& info = c.plan->stages.front().backend->info();
  ProfileFile file;
  file.device = info.name;
  file.library = info.library;
  file.program = GPIPE_VERSION;
  file.date = c.profile_date;
  file.threads = info.threads;
  file.micro_batch = c.plan->micro_batches.sizes.front();
  file.nodes = profiled_nodes(*c.network);
  file.profile = c.profile;
  file.algorithms = c.config.pipeline.algorithms->choices();
  return file;
}

void take_profile(Composition& c, ProfileFile saved, const std::string& path) {
  const ProfileFile here = profile_file(c);
  check_same(saved, here, path);
  if (saved.library != here.library)
    fmt::print(stderr, "warning: {} was measured with {}, this program uses {}\n", path, base::without_controls(saved.library),
               here.library);
  c.profile = std::move(saved.profile);
  c.profile_date = std::move(saved.date);
  c.costs_from = fmt::format("from {} of {}", path, c.profile_date);
}

train::RunFacts facts_of(const Composition& c, std::string run) {
  const base::Tree& optimizer = c.config.train.optimizer;
  std::string name = optimizer.is_null() ? "sgd" : optimizer.is_map() ? optimizer.members().front().first : optimizer.text();
  std::vector<std::string> layers;
  for (const graph::Node& node : c.network->nodes) layers.push_back(node.name + " " + node.type);
  const device::DeviceInfo& info = c.plan->stages.front().backend->info();
  return {std::move(run), std::move(name), std::move(layers), fmt::format("{}, {}", info.name, info.library),
          c.config.pipeline.algorithms->choices()};
}

train::Checkpoint open_checkpoint(const Command& command, const Composition& c) {
  if (!command.checkpoint.empty()) return train::load_checkpoint(command.checkpoint);
  const std::string root = c.config.output_folder() + "/checkpoints";
  train::Newest newest = train::find_newest(root);
  for (const std::string& skipped : newest.skipped) fmt::print(stderr, "warning: skipped {}\n", skipped);
  const int64_t best = newest.checkpoint.state.value("best_step", int64_t{0});
  const std::string folder = root + "/" + train::checkpoint_name(best);
  if (best <= 0 || best == newest.checkpoint.step || !base::kind_of(folder)) return std::move(newest.checkpoint);
  return train::load_checkpoint(folder);
}

TrainedModel load_trained(const Command& command, const Composition& c) {
  const train::Checkpoint checkpoint = open_checkpoint(command, c);
  for (const std::string& warning : checkpoint.warnings) fmt::print(stderr, "warning: {}\n", warning);
  TrainedModel model{std::make_unique<pipeline::Engine>(*c.plan), checkpoint.folder};
  train::restore_model(*model.engine, checkpoint, c.optimizer->averages());
  return model;
}

}  // namespace gpipe::app
