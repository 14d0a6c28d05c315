// What benches are made of: networks of configs/networks at any size, and training steps of a plan on made-up data.
#pragma once

#include "core/graph/network.h"
#include "core/pipeline/engine.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace gpipe::bench {

/// Parameters of a network file, by name.
using Params = std::map<std::string, int64_t>;

/// A network file with other parameters, and what its samples are.
struct ModelSpec {
  std::string file;  // "amoebanet-d"
  Params params;
  tensor::Shape input;  // [H, W, C], or [T] of token ids
  int64_t classes = 0;  // or the vocabulary

  bool tokens() const { return input.rank() == 1; }
};

/// With cross-entropy, to train. Throws ConfigError with all faults.
graph::Network network_of(const ModelSpec& spec);
/// Without a loss: to be counted; nothing is allocated.
int64_t parameters_of(const ModelSpec& spec);

/// The engine of a plan at work: SGD with momentum, whose one slot makes 12 bytes a parameter with weight and gradient.
class Trial {
 public:
  Trial(const ModelSpec& spec, const pipeline::Plan& plan);
  /// One mini-batch; throws BugError where loss or gradient is not finite.
  pipeline::StepResult step();
  pipeline::MiniBatch batch();
  pipeline::Engine& engine() { return engine_; }

 private:
  pipeline::Engine engine_;
  std::vector<float> numbers_;
  std::vector<int32_t> tokens_, targets_;
  std::vector<float> results_;
  std::vector<device::Update> rules_;
  int64_t steps_ = 0;
};

/// Fresh parameters into the engine, and SGD with momentum for each of them.
std::vector<device::Update> started(pipeline::Engine& engine);

constexpr int k_slots = 1;       // of the optimizer
constexpr int64_t k_bytes = 12;  // of a parameter: weight, gradient and slot
constexpr int64_t k_mebi = 1 << 20;

/// Options of K stages and M micro-batches, not bound to cores where there are more stages than cores.
pipeline::PipelineOptions pipeline_of(int64_t partitions, int64_t micro_batches, pipeline::Rematerialize policy);

}  // namespace gpipe::bench
