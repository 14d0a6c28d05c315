// verify: the same mini-batch through two plans, compared bit for bit, node by node.
#pragma once

#include "core/pipeline/engine.h"

#include <map>
#include <string>
#include <tuple>

namespace gpipe::pipeline {

/// Digests of all that a step computed, by (direction, micro-batch, node); direction 0 forward, 1 gradient of an input.
class DigestRecorder final : public InstructionObserver {
 public:
  explicit DigestRecorder(int stages) : by_stage_(static_cast<size_t>(stages)) {}
  bool reads_outputs() const override { return true; }
  void instruction(int stage, const Task& task, const Instruction& what, std::span<const TensorView> outputs,
                   double seconds) override;

  struct Key {
    int backward;
    int micro;
    int node;
    int part;  // which input's gradient
    auto operator<=>(const Key&) const = default;
  };
  using Digests = std::map<Key, uint64_t>;
  Digests all() const;

 private:
  std::vector<Digests> by_stage_;  // each written by its stage's thread alone
};

/// The first difference in the order in which an unpiped step computes, in words; empty when there is none.
std::string first_difference(const DigestRecorder::Digests& piped, const DigestRecorder::Digests& unpiped,
                             const graph::Network& network);

/// Digest of bytes (XXH3, 64 bits).
uint64_t digest(const void* data, size_t bytes, uint64_t seed = 0);

}  // namespace gpipe::pipeline
