// A small encoder and decoder run through the engine with mini-batches of several buckets: what the tests of buckets share.
#pragma once

#include "tests/support/small_run.h"

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace gpipe::test {

struct BucketLengths {
  int64_t source, target;
};
/// Widest first.
constexpr std::array<BucketLengths, 3> k_buckets{{{9, 11}, {6, 11}, {4, 5}}};
constexpr int64_t k_bucket_batch = 8;

/// The network of each bucket on the weights of the widest; 9 tokens. ConfigError where they cannot share them.
struct BucketNetworks {
  explicit BucketNetworks(const std::string& yaml);
  std::unique_ptr<pipeline::Plan> plan(const pipeline::PipelineOptions& options, int slots = 1) const;
  std::vector<graph::Network> all;
};

/// Made-up samples that fit into bucket `fits`, padded to the lengths of bucket `wide`: a pure function of (fits, step).
struct BucketBatch {
  BucketBatch(int fits, int wide, int64_t step);
  pipeline::MiniBatch view();
  static constexpr int64_t valid = 7;  // the last row only fills up
  std::vector<int32_t> input, target;
  std::vector<float> results;
  int64_t targets = 0;
  int bucket;
  int64_t step;
};

/// All that two runs must share, bit for bit.
struct BucketBits {
  std::vector<double> numbers;  // of each step: loss, norm of the gradient, hits
  std::vector<float> tensors;   // results of an evaluation of each bucket; weights and momentum
  bool operator==(const BucketBits&) const = default;
};
/// Steps with the buckets in turn.
BucketBits run_buckets(const BucketNetworks& networks, const pipeline::PipelineOptions& options, int steps);

}  // namespace gpipe::test
