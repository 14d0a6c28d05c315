// A small network on made-up data, run through the engine for some steps: what the pipeline tests compare.
#pragma once

#include "core/graph/network.h"
#include "core/pipeline/engine.h"
#include "core/train/optimizer.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace gpipe::test {

/// A list of layers as YAML text; the loss is cross-entropy on `classes`. Throws ConfigError with all faults.
graph::Network network_of(const std::string& yaml, const tensor::Shape& input, int64_t classes);
/// The same of token ids [length], with one of them to predict at each position, or at each of `targets`.
graph::Network token_network_of(const std::string& yaml, int64_t length, int64_t vocabulary, int64_t targets = 0);

struct SmallRun {
  std::string network;
  tensor::Shape input;
  int64_t classes = 4;
  int64_t batch_size = 8;
  std::string optimizer = "sgd: {momentum: 0.9, weight_decay: 0.01}";
  double learning_rate = 0.05;
  double clip_norm = 1.0;
  uint64_t seed = 3;
  int auxiliary_losses = 0;  // that the network has
  /// Inputs are token ids below `classes`, a sample ends in some of id 0 (padding), and each position but these has a target.
  bool tokens = false;
};
graph::Network network_of(const SmallRun& run);

/// All that two runs must share, bit for bit.
struct RunBits {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<std::string> names;
  std::vector<std::vector<float>> tensors;  // values, then slots, of every tensor in the order of the engine
  std::vector<float> evaluation;            // results of a forward pass with the running averages
  bool operator==(const RunBits&) const = default;
};

/// One mini-batch of made-up samples: a pure function of (seed, step).
struct MadeBatch {
  MadeBatch(const SmallRun& run, int64_t step);
  pipeline::MiniBatch view(uint64_t seed);
  std::vector<float> input;
  std::vector<int32_t> tokens;  // in place of input
  std::vector<int32_t> target;
  std::vector<float> results;
  int64_t step;
  int64_t targets = 0;

 private:
  void make_tokens(const SmallRun& run);
};

/// Parameters from the seed, slots at their initial values.
void initialise(pipeline::Engine& engine, const train::Optimizer& optimizer, uint64_t seed);
/// The same from seed 1 for sgd; a rule for each parameter.
std::vector<device::Update> start_sgd(pipeline::Engine& engine);
RunBits run_steps(const SmallRun& run, const pipeline::PipelineOptions& options, int steps);

extern const char* const k_token_network;     // ids below 9: embeddings, positions, self-, causal and cross-attention, masks
extern const char* const k_residual_network;  // 11 nodes: convolutions, batch norm, dropout, residuals, concat, pooling

}  // namespace gpipe::test
