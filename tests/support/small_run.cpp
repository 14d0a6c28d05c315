#include "tests/support/small_run.h"

#include "app/yaml_tree.h"
#include "core/base/rng.h"
#include "core/graph/builder.h"
#include "core/graph/init.h"
#include "layers/composite_types.h"
#include "layers/layer_types.h"

#include <algorithm>

namespace gpipe::test {

const char* const k_residual_network = R"(
- conv2d: {out_channels: 6, kernel_size: 3, padding: same, bias: false}
- batch_norm
- relu
- residual:
    body:
    - conv2d: {out_channels: 6, kernel_size: 3, padding: same}
    - batch_norm
    - dropout: {p: 0.3}
  name: block
- relu: {}
  name: wide
- concat:
    branches:
    - []
    - - conv2d: {out_channels: 5, kernel_size: 1}
      - silu
- max_pool2d: {kernel_size: 2}
- flatten
- linear: {out_features: 4}
)";

// An encoder and a decoder that learns to predict what it is given, one position late.
const char* const k_token_network = R"(
- embedding: {num_embeddings: 9, embedding_dim: 6, padding_idx: 0, scale: 2}
- positions: {max_length: 11}
  name: source
- attention: {heads: 2, padding: 0, dropout: 0.2}
  inputs: [source, input]
- add:
  inputs: [attention_1, source]
- layer_norm: {}
  name: memory
- shift_tokens: {start: 1, padding: 0}
  inputs: [target]
  name: shifted
- embedding: {num_embeddings: 9, embedding_dim: 6, init: {normal: {std: 0.5}}}
- positions: {kind: sinusoidal}
- residual:
    body:
    - layer_norm
    - attention: {heads: 3, causal: true}
- residual:
    body:
    - layer_norm: {}
      name: query
    - attention: {heads: 1, head_dim: 5, bias: false}
      inputs: [query, memory]
  name: decoded
- attention: {heads: 2, padding: 0, dropout: 0.1}
  inputs: [decoded, memory, input]
- add:
  inputs: [attention_2, decoded]
- linear: {out_features: 9}
)";

namespace {

graph::Network build(const std::string& yaml, const graph::SampleShapes& data) {
  base::Problems problems;
  const base::Tree list = app::parse_yaml(yaml, "network");
  auto network = graph::build_network(list, "network", {}, data, layers::layer_types(), layers::composite_types(), problems);
  problems.throw_if_any();
  return network;
}

}  // namespace

graph::Network network_of(const std::string& yaml, const tensor::Shape& input, int64_t classes) {
  return build(yaml, {input, {}, tensor::DType::i32, classes});
}
graph::Network token_network_of(const std::string& yaml, int64_t length, int64_t vocabulary, int64_t targets) {
  return build(yaml, {{length}, {targets > 0 ? targets : length}, tensor::DType::i32, vocabulary, tensor::DType::i32});
}
graph::Network network_of(const SmallRun& run) {
  if (run.tokens) return token_network_of(run.network, run.input[0], run.classes);
  return network_of(run.network, run.input, run.classes);
}

MadeBatch::MadeBatch(const SmallRun& run, int64_t at) : step(at) {
  results.resize(2 * static_cast<size_t>(run.batch_size * (1 + run.auxiliary_losses)));
  if (run.tokens) {
    make_tokens(run);
    return;
  }
  const base::Philox random(run.seed, base::Purpose::test, static_cast<uint64_t>(at));
  const auto samples = static_cast<size_t>(run.batch_size);
  const auto width = static_cast<size_t>(run.input.elements());
  input.resize(samples * width);
  for (size_t i = 0; i < input.size(); ++i) input[i] = static_cast<float>(random.normal(i));
  target.resize(samples);
  for (size_t i = 0; i < samples; ++i)
    target[i] = static_cast<int32_t>(random.below(1000000 + i, static_cast<uint32_t>(run.classes)));
  targets = run.batch_size;
}

void MadeBatch::make_tokens(const SmallRun& run) {
  const base::Philox random(run.seed, base::Purpose::test, static_cast<uint64_t>(step));
  const auto length = static_cast<size_t>(run.input[0]);
  const auto vocabulary = static_cast<uint32_t>(run.classes);
  for (size_t n = 0; n < static_cast<size_t>(run.batch_size); ++n) {
    const size_t real = 1 + random.below(2000000 + n, static_cast<uint32_t>(length));
    for (size_t t = 0; t < length; ++t) {
      const size_t i = n * length + t;
      tokens.push_back(t < real ? static_cast<int32_t>(1 + random.below(i, vocabulary - 1)) : 0);
      target.push_back(t < real ? static_cast<int32_t>(random.below(1000000 + i, vocabulary)) : device::k_ignored_target);
    }
    targets += static_cast<int64_t>(real);
  }
}

pipeline::MiniBatch MadeBatch::view(uint64_t seed) {
  pipeline::MiniBatch batch;
  batch.input = tokens.empty() ? reinterpret_cast<std::byte*>(input.data()) : reinterpret_cast<std::byte*>(tokens.data());
  batch.target = reinterpret_cast<std::byte*>(target.data());
  batch.results = results.data();
  batch.targets = targets;
  batch.step = step;
  batch.seed = seed;
  return batch;
}

void initialise(pipeline::Engine& engine, const train::Optimizer& optimizer, uint64_t seed) {
  for (pipeline::StateTensor* tensor : engine.tensors()) {
    if (tensor->spec == nullptr || !tensor->value) continue;
    graph::initialise(*tensor->spec, tensor->name, seed,
                      std::span(tensor->value.f32(), static_cast<size_t>(tensor->value.elements())));
    for (size_t slot = 0; slot < tensor->slots.size(); ++slot)
      std::fill_n(tensor->slots[slot].f32(), tensor->slots[slot].elements(), optimizer.initial(slot));
  }
  engine.pack();
}

std::vector<device::Update> start_sgd(pipeline::Engine& engine) {
  base::Problems problems;
  initialise(engine, *train::make_optimizer(base::Tree::scalar("sgd"), "", problems), 1);
  return std::vector<device::Update>(engine.parameter_count(), device::MomentumUpdate{});
}

RunBits run_steps(const SmallRun& run, const pipeline::PipelineOptions& options, int steps) {
  const graph::Network network = network_of(run);
  base::Problems problems;
  const auto optimizer = train::make_optimizer(app::parse_yaml(run.optimizer, "optimizer"), "optimizer", problems);
  problems.throw_if_any();
  const auto plan = pipeline::make_plan(network, {options, run.batch_size, static_cast<int>(optimizer->slots().size()), {}});
  pipeline::Engine engine(*plan);
  initialise(engine, *optimizer, run.seed);
  RunBits bits;
  for (int step = 0; step < steps; ++step) {
    MadeBatch made(run, step);
    std::vector<device::Update> rules;
    for (size_t i = 0; i < engine.parameter_count(); ++i)
      rules.push_back(optimizer->rule(step, run.learning_rate, engine.tensors()[i]->spec->decays));
    const pipeline::StepResult result = engine.train(made.view(run.seed), rules, run.clip_norm);
    bits.losses.push_back(result.loss);
    bits.norms.push_back(result.gradient_norm);
  }
  MadeBatch made(run, steps);
  engine.evaluate(made.view(run.seed));
  bits.evaluation = made.results;
  engine.fetch();
  for (const pipeline::StateTensor* tensor : engine.tensors()) {
    bits.names.push_back(tensor->name);
    const auto take = [&](const tensor::TensorView& view) {
      if (!view) return;  // another process has it
      bits.tensors.emplace_back(view.f32(), view.f32() + view.elements());
    };
    take(tensor->value);
    for (const tensor::TensorView& slot : tensor->slots) take(slot);
  }
  return bits;
}

}  // namespace gpipe::test
