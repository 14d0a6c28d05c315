// How long a partition takes, as JSON lines: 1,000 nodes on 128 stages, for every objective, plain and with everything on.
#include "core/base/rng.h"
#include "core/pipeline/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <vector>

using namespace gpipe;

namespace {

pipeline::PartitionProblem problem_of(int nodes, int stages, bool uneven) {
  const base::Philox random(1, base::Purpose::test);
  uint64_t at = 0;
  const auto draw = [&](uint32_t below) { return static_cast<int64_t>(random.below(at++, below)); };
  pipeline::PartitionProblem p;
  p.stages = stages;
  for (int i = 0; i < nodes; ++i) {
    p.costs.push_back(1e-5 * static_cast<double>(1 + draw(1000)));
    p.cut_bytes.push_back(draw(1 << 20));
    p.memory.fixed.push_back(draw(100000));
    if (uneven) p.cut_costs.push_back(1e-6 * static_cast<double>(draw(300)));
  }
  for (int stage = 0; uneven && stage < stages; ++stage) {
    p.speeds.push_back(1 + 0.25 * static_cast<double>(draw(5)));
    p.memory_limits.push_back(1000000);
  }
  return p;
}

double median_seconds(const pipeline::PartitionProblem& problem, pipeline::Objective objective) {
  std::vector<double> seconds;
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const auto found = pipeline::partition(problem, objective);
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    if (!std::holds_alternative<pipeline::Partition>(found)) fmt::print(stderr, "no split fits\n");
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

}  // namespace

int main() {
  constexpr int nodes = 1000;
  constexpr int stages = 128;
  for (const bool uneven : {false, true})
    for (const auto& [name, objective] :
         {std::pair("bottleneck", pipeline::Objective::bottleneck), std::pair("variance", pipeline::Objective::variance),
          std::pair("cumulative", pipeline::Objective::cumulative)})
      fmt::print(
          "{{\"bench\": \"partition\", \"objective\": \"{}\", \"nodes\": {}, \"stages\": {}, \"speeds_cuts_limits\": {}, "
          "\"seconds\": {:.4f}}}\n",
          name, nodes, stages, uneven, median_seconds(problem_of(nodes, stages, uneven), objective));
  return 0;
}
