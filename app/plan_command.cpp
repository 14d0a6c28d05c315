// plan and verify: what a run would do, and that the pipeline changes nothing about its numbers.
#include "app/commands.h"
#include "app/plan_page.h"
#include "app/plan_search.h"
#include "app/session.h"
#include "app/tables.h"
#include "core/pipeline/verify.h"
#include "core/train/trainer.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace gpipe::app {
namespace {

/// What a step leaves: its digests, node by node, and those of its ends.
struct Step {
  pipeline::DigestRecorder::Digests digests;
  pipeline::StepResult result;
  uint64_t losses = 0, gradients = 0, weights = 0;
};

Step one_step(const Composition& c, const pipeline::Plan& plan, int bucket) {
  pipeline::Engine engine(plan);
  train::Loader data(c.data.train, train::training_loader(c.config.data, c.data.normalization, c.config.train.batch_size, 1));
  train::Trainer trainer({engine, data, nullptr, *c.optimizer, *c.rate, c.config.train, c.config.checkpoint});
  trainer.initialise();
  FirstBatch batch(c, bucket);
  pipeline::MiniBatch mini = batch.view();
  pipeline::DigestRecorder recorder(static_cast<int>(plan.stages.size()));
  engine.set_observer(&recorder);
  std::vector<device::Update> rules;
  for (size_t i = 0; i < engine.parameter_count(); ++i)
    rules.push_back(c.optimizer->rule(0, c.config.train.learning_rate, engine.tensors()[i]->spec->decays));
  Step step;
  step.result = engine.train(mini, rules, c.config.train.clip_norm);
  step.digests = recorder.all();
  step.losses = pipeline::digest(mini.results, static_cast<size_t>(2 * c.config.train.batch_size) * sizeof(float));
  engine.fetch(true);
  for (const pipeline::StateTensor* tensor : engine.tensors()) {
    if (tensor->gradient) step.gradients = pipeline::digest(tensor->gradient.data, tensor->gradient.bytes(), step.gradients);
    step.weights = pipeline::digest(tensor->value.data, tensor->value.bytes(), step.weights);
  }
  return step;
}

/// A step with the first mini-batch of a bucket, as planned and unpiped.
void verify_bucket(const Composition& c, const pipeline::Plan& reference_plan, int bucket) {
  const Step reference = one_step(c, reference_plan, bucket);
  const Step piped = one_step(c, *c.plan, bucket);
  std::string difference = pipeline::first_difference(piped.digests, reference.digests, *c.network);
  if (difference.empty() && piped.losses != reference.losses) difference = "the losses of the samples";
  if (difference.empty() && piped.gradients != reference.gradients) difference = "the gradients, summed over micro-batches";
  if (difference.empty() && piped.weights != reference.weights) difference = "the weights after the update";
  std::string which;
  if (c.plan->buckets() > 1) {
    const train::BucketShape shape = c.data.train->spec().bucket(bucket);
    which = fmt::format("bucket {}, {}: ", shape.input, shape.target);
  }
  if (!difference.empty()) throw base::BugError("{}the plan and an unpiped step differ first at {}", which, difference);
  fmt::print("{}{} stages, {} micro-batches, one step: the same bits as unpiped ({} tensors compared)\n", which,
             c.plan->stages.size(), c.plan->micro_batches.count(), reference.digests.size());
  fmt::print("loss       {:016x}  ({:.6f})\ngradients  {:016x}  (norm {:.6f})\nweights    {:016x}\n", piped.losses,
             piped.result.loss, piped.gradients, piped.result.gradient_norm, piped.weights);
}

}  // namespace

int run_plan(const Command& command, const Catalog& catalog) {
  if (!command.costs_file.empty()) return run_plan_of_costs(command, catalog);
  const auto c = open_session(command, catalog);
  if (command.search) {
    const SearchOutcome outcome = search_pipeline(*c, command.profile);
    if (command.json)
      fmt::print("{}\n", search_json(*c, outcome).dump());
    else
      fmt::print("{}", search_text(*c, outcome));
    return outcome.candidates.front().fits() ? 0 : static_cast<int>(base::ExitCode::memory);
  }
  const PlanPage page(*c);
  if (!command.svg.empty()) base::replace_file(base::real_files(), command.svg, pipeline::svg_of({page.timeline()}));
  if (command.json)
    fmt::print("{}\n", page.json().dump());
  else
    fmt::print("{}\n{}", layer_table(*c->network), page.text());
  return pipeline::memory_verdict(*c->plan).fits() ? 0 : static_cast<int>(base::ExitCode::memory);
}

int run_verify(const Command& command, const Catalog& catalog) {
  const auto c = open_session(command, catalog);
  if (!c->config.train.deterministic && !c->plan->stages.front().backend->is_host())
    throw base::ConfigError(
        "verify compares bits, which train.deterministic: false leaves to chance on GPUs; add --set train.deterministic=true");
  const auto reference_plan = plan_with(*c, unpiped(c->config.pipeline));
  const std::vector<int64_t> batches = training_order(*c).batches_by_bucket();
  for (size_t bucket = 0; bucket < batches.size(); ++bucket)
    if (batches[bucket] > 0) verify_bucket(*c, *reference_plan, static_cast<int>(bucket));
  return 0;
}

}  // namespace gpipe::app
