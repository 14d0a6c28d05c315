#include "app/compose.h"

#include "core/graph/builder.h"
#include "data/dataset_types.h"
#include "layers/composite_types.h"
#include "layers/layer_types.h"

#include <fmt/format.h>

namespace gpipe::app {
namespace {

void open_data(Composition& c) {
  base::Problems problems;
  const auto types = data::dataset_types();
  c.data = train::open_data(c.config.data, types, static_cast<uint64_t>(c.config.train.seed), problems);
  problems.throw_if_any();
  c.warnings.insert(c.warnings.end(), c.data.warnings.begin(), c.data.warnings.end());
  const int64_t samples = c.data.train->size();
  if (c.config.train.batch_size > samples && c.config.data.drop_last)
    throw base::ConfigError(
        "train.batch_size: {} samples in a mini-batch, but the training set has {}; use at most {}, or data.drop_last: false",
        c.config.train.batch_size, samples, samples);
}

void build_network(Composition& c) {
  base::Problems problems;
  const train::SampleSpec& spec = c.data.train->spec();
  const graph::SampleShapes shapes{spec.input, spec.target, spec.target_type, spec.classes};
  c.network = std::make_unique<graph::Network>(graph::build_network(c.config.network, "network", c.config.train.loss, shapes,
                                                                    layers::layer_types(), layers::composite_types(), problems));
  problems.throw_if_any();
  c.warnings.insert(c.warnings.end(), problems.warnings().begin(), problems.warnings().end());
}

}  // namespace

std::unique_ptr<Composition> compose(RunConfig config) {
  auto c = std::make_unique<Composition>();
  c->config = std::move(config);
  c->warnings = c->config.warnings;
  base::Problems problems;
  c->optimizer = train::make_optimizer(c->config.train.optimizer, "train.optimizer", problems);
  c->rate = train::make_rate(c->config.train.schedule, "train.schedule", problems);
  problems.throw_if_any();
  open_data(*c);
  build_network(*c);
  c->plan = plan_with(*c, c->config.pipeline);
  return c;
}

std::unique_ptr<pipeline::Plan> plan_with(const Composition& c, const pipeline::PipelineOptions& options) {
  std::vector<double> costs;
  for (const pipeline::NodeProfile& node : c.profile) costs.push_back(node.total(options.rematerialize));
  return pipeline::make_plan(
      *c.network, {options, c.config.train.batch_size, static_cast<int>(c.optimizer->slots().size()), std::move(costs)});
}

}  // namespace gpipe::app
