// Where make_plan cuts the network.
#include "core/pipeline/boundaries.h"
#include "core/pipeline/estimate.h"
#include "core/pipeline/plan_parts.h"
#include "core/pipeline/predict.h"
#include "core/pipeline/search.h"

#include <algorithm>
#include <tuple>

namespace gpipe::pipeline {
namespace {

/// Micro-batches that each stage holds at once, before it is known where the stages are: by equal ones.
std::vector<int> live_counts(const Schedule& schedule) {
  std::vector<int> live;
  for (int stage = 0; stage < schedule.stages; ++stage)
    live.push_back(most_live(schedule, stage, Work::forward, Work::backward_weight));
  return live;
}

/// A cut as the plan that it makes has it: first what the fullest device has too much, then the slowest stage.
struct Judged {
  int64_t excess = 0;
  double slowest = 0;
  Boundaries boundaries;
  bool operator<(const Judged& other) const { return std::tie(excess, slowest) < std::tie(other.excess, other.slowest); }
};

Judged judge(const Outline& outline, const Operations& operations, Boundaries boundaries) {
  const auto plan = assemble(outline, boundaries, &operations);
  Judged judged{0, 0, std::move(boundaries)};
  const MemoryVerdict memory = memory_verdict(*plan);
  judged.excess = memory.fits() ? 0 : memory.bytes - memory.limit;
  const Prediction prediction = predict(*plan);
  for (size_t stage = 0; stage < plan->stages.size(); ++stage)
    judged.slowest = std::max(judged.slowest, prediction.stage_seconds(static_cast<int>(stage), *plan));
  return judged;
}

/// Moves one cut at a time, as long as that helps: the memory of a stage is known only once it is planned.
Judged improve(const Outline& outline, const Operations& operations, Judged best) {
  constexpr int k_reach = 12;  // nodes that a cut is moved at most
  constexpr int k_rounds = 20;
  for (int round = 0; round < k_rounds; ++round) {
    const Judged before = best;
    for (size_t cut = 1; cut + 1 < before.boundaries.size(); ++cut)
      for (int to = before.boundaries[cut] - k_reach; to <= before.boundaries[cut] + k_reach; ++to) {
        if (to <= before.boundaries[cut - 1] || to >= before.boundaries[cut + 1] || to == before.boundaries[cut]) continue;
        if (to > outline.network.loss_node() - 1) continue;  // the loss is no stage of its own
        Boundaries moved = before.boundaries;
        moved[cut] = to;
        if (Judged judged = judge(outline, operations, std::move(moved)); judged < best) best = std::move(judged);
      }
    if (!(best < before)) break;
  }
  return best;
}

/// The number of ways to cut n layers into K stages, or a number above `most`.
int64_t splits(int nodes, int stages, int64_t most) {
  int64_t count = 1;
  for (int k = 1; k < stages && count <= most; ++k) count = count * (nodes - k) / k;
  return count;
}

/// The best of all cuts, one by one.
void try_all(const Outline& outline, const Operations& operations, Boundaries& so_far, int stages, Judged& best) {
  const int nodes = outline.network.loss_node();
  if (stages == 1) {
    so_far.push_back(nodes + 1);
    if (Judged judged = judge(outline, operations, so_far); judged < best) best = std::move(judged);
    so_far.pop_back();
    return;
  }
  for (int end = so_far.back() + 1; end <= nodes - stages + 1; ++end) {
    so_far.push_back(end);
    try_all(outline, operations, so_far, stages - 1, best);
    so_far.pop_back();
  }
}

}  // namespace

Boundaries cut(const Outline& outline, const Operations& operations) {
  const PipelineOptions& options = outline.request.options;
  const Schedule& equal = outline.equal;
  const std::vector<double> weights = partition_costs(outline.network, outline.costs, options.rematerialize);
  CutRequest request{outline.network,
                     options,
                     equal.stages,
                     equal.device_of,
                     outline.devices,
                     weights,
                     outline.costs,
                     operations,
                     live_counts(equal),
                     outline.micro_batches.count(),
                     outline.micro_batches.sizes.front(),
                     outline.request.optimizer_slots,
                     0};
  const auto by_limit = [&](double scale) {
    base::Problems problems;
    request.limit_scale = scale;
    Boundaries boundaries = choose_boundaries(request, problems);
    problems.throw_if_any();
    return boundaries;
  };
  Boundaries free = by_limit(0);
  const bool automatic = options.balance.is_null() || options.balance.is_scalar();
  if (equal.stages == 1 || !automatic) return free;
  Judged best = judge(outline, operations, std::move(free));
  if (best.excess == 0) return best.boundaries;
  constexpr int64_t k_few = 500;
  if (splits(outline.network.loss_node(), equal.stages, k_few) <= k_few) {
    Boundaries so_far{0};
    try_all(outline, operations, so_far, equal.stages, best);
    return best.boundaries;
  }
  Boundaries last;
  for (const double scale : {2.0, 1.5, 1.3, 1.2, 1.1, 1.0, 0.9, 0.8, 0.6}) {
    Boundaries boundaries = by_limit(scale);
    if (boundaries == last) continue;
    last = boundaries;
    if (Judged judged = judge(outline, operations, std::move(boundaries)); judged < best) best = std::move(judged);
    if (best.excess == 0) break;
  }
  return improve(outline, operations, std::move(best)).boundaries;
}

}  // namespace gpipe::pipeline
