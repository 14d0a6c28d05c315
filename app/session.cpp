#include "app/session.h"

#include "core/base/text.h"
#include "core/graph/init.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cstdio>

namespace gpipe::app {

std::unique_ptr<Composition> open_session(const Command& command, const Catalog& catalog) {
  auto composition = compose(load_run_config(command.config_file, command.overrides, catalog));
  for (const std::string& warning : composition->warnings) fmt::print(stderr, "warning: {}\n", warning);
  if (!command.profile) return composition;
  composition->profile = profile_nodes(*composition);
  composition->plan = plan_with(*composition, composition->config.pipeline);
  return composition;
}

FirstBatch::FirstBatch(const Composition& c)
    : loader_(c.data.train, train::training_loader(c.config.data, c.data.normalization, c.config.train.batch_size,
                                                   static_cast<uint64_t>(c.config.train.seed))),
      batch_((loader_.start(0, 0), loader_.next())),
      results_(static_cast<size_t>(2 * c.config.train.batch_size)),
      seed_(static_cast<uint64_t>(c.config.train.seed)) {}

pipeline::MiniBatch FirstBatch::view() {
  pipeline::MiniBatch batch;
  batch.input = batch_.input.data;
  batch.target = batch_.target.data;
  batch.results = results_.data();
  batch.samples = batch_.samples;
  batch.seed = seed_;
  return batch;
}

std::vector<pipeline::NodeProfile> profile_nodes(const Composition& c) {
  pipeline::PipelineOptions options = c.config.pipeline;
  options.partitions = 1;
  options.balance = {};
  options.schedule = "gpipe";
  options.chunks = 0;
  options.rematerialize = pipeline::Rematerialize::none;
  const auto plan = plan_with(c, options);
  pipeline::Engine engine(*plan);
  for (pipeline::StateTensor* tensor : engine.tensors())
    if (tensor->spec != nullptr)
      graph::initialise(*tensor->spec, tensor->name, static_cast<uint64_t>(c.config.train.seed),
                        std::span(tensor->value.f32(), static_cast<size_t>(tensor->value.elements())));
  engine.pack();
  FirstBatch batch(c);
  return pipeline::measure_nodes(engine, batch.view(), 3);
}

nlohmann::json profile_json(const Composition& c) {
  const device::DeviceInfo& info = c.plan->stages.front().backend->info();
  nlohmann::json json{{"device", info.name},
                      {"library", info.library},
                      {"threads", info.threads},
                      {"micro_batch", c.plan->micro_batches.sizes.front()},
                      {"unit", "seconds for one micro-batch"},
                      {"nodes", nlohmann::json::array()}};
  for (size_t node = 0; node < c.profile.size(); ++node)
    json["nodes"].push_back({{"name", c.network->nodes[node].name},
                             {"forward", c.profile[node].forward},
                             {"backward_input", c.profile[node].backward_input},
                             {"backward_weight", c.profile[node].backward_weight}});
  return json;
}

train::RunFacts facts_of(const Composition& c, std::string run) {
  const base::Tree& optimizer = c.config.train.optimizer;
  std::string name = optimizer.is_null() ? "sgd" : optimizer.is_map() ? optimizer.members().front().first : optimizer.text();
  std::vector<std::string> layers;
  for (const graph::Node& node : c.network->nodes) layers.push_back(node.name + " " + node.type);
  return {std::move(run),
          std::move(name),
          std::move(layers),
          c.config.train.batch_size,
          c.config.pipeline.micro_batches,
          c.config.pipeline.threads,
          c.config.train.seed};
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

}  // namespace gpipe::app
