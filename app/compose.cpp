#include "app/compose.h"

#include "app/calibration.h"
#include "core/graph/builder.h"
#include "core/train/averaged.h"
#include "data/dataset_types.h"
#include "layers/composite_types.h"
#include "layers/layer_types.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace gpipe::app {
namespace {

void open_data(Composition& c, base::Problems& problems) {
  const auto types = data::dataset_types();
  c.data = train::open_data(c.config.data, types, static_cast<uint64_t>(c.config.train.seed), problems);
  c.warnings.insert(c.warnings.end(), c.data.warnings.begin(), c.data.warnings.end());
  if (!c.data.train) return;
  for (const auto& [name, data] : {std::pair("data.train", c.data.train.get()), {"data.validation", c.data.validation.get()}})
    if (data != nullptr && !data->spec().labelled)
      problems.add({}, name,
                   "it has no targets, and nothing can be learned or measured without; only predict --input takes such data");
  const int64_t samples = c.data.train->size();
  if (c.config.train.batch_size > samples && c.config.data.drop_last)
    problems.add({}, "train.batch_size",
                 fmt::format("{} samples in a mini-batch, but the training set has {}; use at most {}, or data.drop_last: false",
                             c.config.train.batch_size, samples, samples));
}

std::unique_ptr<graph::Network> network_for(const Composition& c, const train::BucketShape& bucket, base::Problems& problems) {
  const train::SampleSpec& spec = c.data.train->spec();
  const graph::SampleShapes shapes{bucket.input, bucket.target, spec.target_type, spec.classes, spec.input_type};
  return std::make_unique<graph::Network>(graph::build_network(c.config.network, "network", c.config.train.loss, shapes,
                                                               layers::layer_types(), layers::composite_types(), problems));
}

/// For the widest samples, then for those of each narrower bucket, on the same weights.
void build_networks(Composition& c, base::Problems& problems) {
  const train::SampleSpec& spec = c.data.train->spec();
  c.network = network_for(c, spec.bucket(0), problems);
  if (problems.empty()) train::freeze_parts(*c.network, c.parts, problems);
  for (const train::BucketShape& bucket : spec.narrower) {
    if (!problems.empty()) return;
    const base::Problems::Within note(problems, fmt::format("with samples of the bucket {}, {}", bucket.input, bucket.target));
    c.narrower.push_back(network_for(c, bucket, problems));
    if (!problems.empty()) return;
    train::freeze_parts(*c.narrower.back(), c.parts, problems);
    graph::share_parameters(*c.network, *c.narrower.back(), problems);
  }
}

/// A checkpoint interval that the run never reaches is no fault, but hardly what was meant.
void warn_of_long_intervals(Composition& c, base::Problems& problems) {
  const auto& [train, checkpoint] = std::tie(c.config.train, c.config.checkpoint);
  const int64_t per_epoch = std::max<int64_t>(1, training_order(c).batches());
  const int64_t steps = train.steps > 0 ? train.steps : train.epochs * per_epoch;
  const char* then = checkpoint.final_save ? "there will be the one at the end" : "and checkpoint.final_save is false";
  if (checkpoint.every_steps > steps)
    problems.warn({}, "checkpoint.every_steps",
                  fmt::format("a checkpoint every {} steps, but the run has {}: {}", checkpoint.every_steps, steps, then));
  if (checkpoint.every_epochs > 1 && checkpoint.every_epochs * per_epoch > steps)
    problems.warn({}, "checkpoint.every_epochs",
                  fmt::format("a checkpoint every {} epochs of {} steps, but the run has {} steps: {}", checkpoint.every_epochs,
                              per_epoch, steps, then));
  if (checkpoint.best.starts_with("validation_") && train.validate_every > steps)
    problems.warn({}, "train.validate_every",
                  fmt::format("a validation every {} steps, but the run has {}: there will be the one at the end",
                              train.validate_every, steps));
}

/// Nodes of a narrower bucket: estimated; measured ones take as much less as the estimates say.
std::vector<pipeline::NodeProfile> narrower_profile(const Composition& c, const graph::Network& narrower,
                                                    const pipeline::PlanRequest& request) {
  const pipeline::MicroBatches micro_batches(request.batch_size, request.options.micro_batches);
  const auto estimated = [&](const graph::Network& network) {
    return pipeline::estimated_profile(network, c.peaks, micro_batches.sizes.front(), request.optimizer_slots);
  };
  std::vector<pipeline::NodeProfile> costs = estimated(narrower);
  if (c.profile.empty()) return costs;
  const std::vector<pipeline::NodeProfile> wide = estimated(*c.network);
  for (size_t i = 0; i < costs.size(); ++i) {
    pipeline::NodeProfile scaled = request.costs[i];
    for (double pipeline::NodeProfile::*time :
         {&pipeline::NodeProfile::forward, &pipeline::NodeProfile::backward_input, &pipeline::NodeProfile::backward_weight})
      if (wide[i].*time > 0) scaled.*time *= costs[i].*time / (wide[i].*time);
    costs[i] = scaled;
  }
  return costs;
}

}  // namespace

std::unique_ptr<Composition> compose(RunConfig config, bool calibrate) {
  auto c = std::make_unique<Composition>();
  c->config = std::move(config);
  c->config.pipeline.precision = c->config.train.precision;
  c->warnings = c->config.warnings;
  base::Problems settings;
  c->optimizer = train::make_optimizer(c->config.train.optimizer, "train.optimizer", settings);
  c->rate = train::make_rate(c->config.train.schedule, "train.schedule", settings);
  if (c->optimizer && c->config.train.ema_decay > 0)
    c->optimizer = train::averaged(std::move(c->optimizer), c->config.train.ema_decay);
  c->parts = train::read_parts(c->config.train.parts, "train.parts", settings);
  c->init_from = train::read_init_from(c->config.train.init_from, "train.init_from", settings);
  settings.throw_if_any();  // before the data, whose own errors would hide these
  base::Problems problems;
  open_data(*c, problems);
  if (c->data.train) {
    build_networks(*c, problems);
    warn_of_long_intervals(*c, problems);
  }
  problems.throw_if_any();
  c->warnings.insert(c->warnings.end(), problems.warnings().begin(), problems.warnings().end());
  if (calibrate && c->network->given_costs.empty())
    c->peaks = device_peaks(c->config.pipeline.device,
                            {static_cast<int>(c->config.pipeline.threads), {}, c->config.train.precision}, c->warnings);
  c->costs_from = fmt::format("estimated from operations and bytes at {:.0f} GFLOP/s and {:.0f} GB/s; --profile measures them",
                              c->peaks.convolution_flops / 1e9, c->peaks.memory_bytes / 1e9);
  if (!c->config.pipeline.search) c->plan = plan_with(*c, c->config.pipeline);
  return c;
}

std::vector<pipeline::NodeProfile> node_profile(const Composition& c, const pipeline::PipelineOptions& options) {
  if (!c.profile.empty()) return c.profile;
  const pipeline::MicroBatches micro_batches(c.config.train.batch_size, options.micro_batches);
  return pipeline::estimated_profile(*c.network, c.peaks, micro_batches.sizes.front(),
                                     static_cast<int>(c.optimizer->slots().size()));
}

train::EpochOrder training_order(const Composition& c) {
  return train::order_of(*c.data.train, train::training_loader(c.config.data, c.data.normalization, c.config.train.batch_size,
                                                               static_cast<uint64_t>(c.config.train.seed)));
}

std::unique_ptr<pipeline::Plan> plan_with(const Composition& c, const pipeline::PipelineOptions& options) {
  const int slots = static_cast<int>(c.optimizer->slots().size());
  pipeline::PlanRequest request{options, c.config.train.batch_size, slots, node_profile(c, options)};
  for (const auto& network : c.narrower) request.narrower.push_back({network.get(), narrower_profile(c, *network, request)});
  return pipeline::make_plan(*c.network, request);
}

}  // namespace gpipe::app
