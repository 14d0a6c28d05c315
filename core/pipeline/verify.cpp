#include "core/pipeline/verify.h"

#include <algorithm>
#include <vector>
#include <xxhash.h>

namespace gpipe::pipeline {

uint64_t digest(const void* data, size_t bytes, uint64_t seed) { return XXH3_64bits_withSeed(data, bytes, seed); }

void DigestRecorder::instruction(int stage, const Task& task, const Instruction& what, std::span<const TensorView> outputs,
                                 double /*seconds*/) {
  const bool forward = what.kind == Instruction::Kind::forward && task.work == Work::forward;
  if (!forward && what.kind != Instruction::Kind::backward_input) return;
  for (size_t part = 0; part < outputs.size(); ++part) {
    if (!outputs[part]) continue;
    by_stage_[static_cast<size_t>(stage)][{forward ? 0 : 1, task.micro, what.node, static_cast<int>(part)}] =
        digest(outputs[part].data, outputs[part].bytes());
  }
}

DigestRecorder::Digests DigestRecorder::all() const {
  Digests sum;
  for (const Digests& stage : by_stage_) sum.insert(stage.begin(), stage.end());
  return sum;
}

std::string first_difference(const DigestRecorder::Digests& piped, const DigestRecorder::Digests& unpiped,
                             const graph::Network& network) {
  std::vector<DigestRecorder::Key> keys;
  for (const auto& [key, value] : unpiped) keys.push_back(key);
  // Forward goes through the nodes upwards, backward downwards.
  std::stable_sort(keys.begin(), keys.end(), [](const auto& a, const auto& b) {
    if (a.backward != b.backward || a.micro != b.micro) return std::tie(a.backward, a.micro) < std::tie(b.backward, b.micro);
    return a.backward != 0 ? a.node > b.node : a.node < b.node;
  });
  for (const DigestRecorder::Key& key : keys) {
    const auto found = piped.find(key);
    if (found != piped.end() && found->second == unpiped.at(key)) continue;
    return fmt::format(
        "node {} ({}), micro-batch {}, {}: {}", key.node + 1, network.nodes[static_cast<size_t>(key.node)].name, key.micro,
        key.backward != 0 ? fmt::format("backward, gradient of input {}", key.part) : std::string("forward"),
        found == piped.end() ? std::string("not computed by the plan")
                             : fmt::format("{:016x} by the plan, {:016x} unpiped", found->second, unpiped.at(key)));
  }
  return {};
}

}  // namespace gpipe::pipeline
