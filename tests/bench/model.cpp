#include "tests/bench/model.h"

#include "app/network_file.h"
#include "app/yaml_tree.h"
#include "core/base/error.h"
#include "core/base/rng.h"
#include "core/graph/builder.h"
#include "core/graph/init.h"
#include "layers/composite_types.h"
#include "layers/layer_types.h"

#include <fmt/format.h>

namespace gpipe::bench {
namespace {

base::Tree definition_of(const ModelSpec& spec) {
  base::Tree params = base::Tree::map();
  for (const auto& [name, value] : spec.params) params.set(name, base::Tree::scalar(fmt::format("{}", value)));
  base::Tree network = base::Tree::map();
  network.set("file", base::Tree::scalar(fmt::format("{}/configs/networks/{}.yaml", GPIPE_SOURCE_DIR, spec.file)));
  network.set("params", std::move(params));
  base::Problems problems;
  base::Tree definition = app::resolve_network(network, ".", problems);
  problems.throw_if_any();
  return definition;
}

graph::SampleShapes shapes_of(const ModelSpec& spec) {
  using tensor::DType;
  if (spec.tokens()) return {spec.input, spec.input, DType::i32, spec.classes, DType::i32};
  return {spec.input, {}, DType::i32, spec.classes, DType::f32};
}

}  // namespace

graph::Network network_of(const ModelSpec& spec) {
  base::Problems problems;
  auto network = graph::build_network(definition_of(spec), "network", {}, shapes_of(spec), layers::layer_types(),
                                      layers::composite_types(), problems);
  problems.throw_if_any();
  return network;
}

int64_t parameters_of(const ModelSpec& spec) {
  base::Problems problems;
  const auto network = graph::build_layers(definition_of(spec), "network", shapes_of(spec), layers::layer_types(),
                                           layers::composite_types(), problems);
  problems.throw_if_any();
  return network.parameter_count();
}

pipeline::PipelineOptions pipeline_of(int64_t partitions, int64_t micro_batches, pipeline::Rematerialize policy) {
  pipeline::PipelineOptions options;
  options.partitions = partitions;
  options.micro_batches = micro_batches;
  options.rematerialize = policy;
  return options;
}

std::vector<device::Update> started(pipeline::Engine& engine) {
  for (pipeline::StateTensor* tensor : engine.tensors())
    if (tensor->spec != nullptr)
      graph::initialise(*tensor->spec, tensor->name, 1,
                        std::span(tensor->value.f32(), static_cast<size_t>(tensor->value.elements())));
  engine.pack();
  device::MomentumUpdate rule;
  rule.common.learning_rate = 1e-3F;
  rule.momentum = 0.9F;
  return {engine.parameter_count(), rule};
}

Trial::Trial(const ModelSpec& spec, const pipeline::Plan& plan) : engine_(plan) {
  const int64_t batch = plan.micro_batches.mini_batch;
  const base::Philox random(1, base::Purpose::test);
  const auto id = [&](uint64_t i) { return static_cast<int32_t>(random.below(i, static_cast<uint32_t>(spec.classes))); };
  const auto elements = static_cast<size_t>(batch * spec.input.elements());
  if (spec.tokens()) {
    tokens_.resize(elements);
    for (size_t i = 0; i < elements; ++i) tokens_[i] = id(i);
  } else {
    numbers_.resize(elements);
    for (size_t i = 0; i < elements; ++i) numbers_[i] = random.uniform(i) - 0.5F;
  }
  targets_.resize(spec.tokens() ? elements : static_cast<size_t>(batch));
  for (size_t i = 0; i < targets_.size(); ++i) targets_[i] = id(elements + i);
  results_.resize(static_cast<size_t>(2 * batch));
  rules_ = started(engine_);
}

pipeline::MiniBatch Trial::batch() {
  pipeline::MiniBatch batch;
  batch.input = tokens_.empty() ? reinterpret_cast<std::byte*>(numbers_.data()) : reinterpret_cast<std::byte*>(tokens_.data());
  batch.target = reinterpret_cast<std::byte*>(targets_.data());
  batch.results = results_.data();
  batch.targets = static_cast<int64_t>(targets_.size());
  batch.step = steps_;
  return batch;
}

pipeline::StepResult Trial::step() {
  constexpr double clip_norm = 10;  // as AmoebaNet was trained
  const pipeline::StepResult result = engine_.train(batch(), rules_, clip_norm);
  if (!result.finite)
    throw base::BugError("step {}: loss {}, gradient norm {}: nothing was updated", steps_, result.loss, result.gradient_norm);
  ++steps_;
  return result;
}

}  // namespace gpipe::bench
