#include "core/pipeline/program.h"

#include <algorithm>
#include <set>

namespace gpipe::pipeline {

size_t lay_out(std::vector<Lifetime*>& pieces) {
  std::stable_sort(pieces.begin(), pieces.end(), [](const Lifetime* a, const Lifetime* b) { return a->bytes > b->bytes; });
  std::vector<const Lifetime*> by_offset;  // placed pieces, ascending
  size_t total = 0;
  for (Lifetime* piece : pieces) {
    size_t offset = 0;
    for (const Lifetime* placed : by_offset) {
      const bool together = placed->first <= piece->last && piece->first <= placed->last;
      if (!together) continue;
      if (placed->offset >= offset + piece->bytes) break;
      offset = std::max(offset, placed->offset + placed->bytes);
    }
    piece->offset = offset;
    const auto above =
        std::find_if(by_offset.begin(), by_offset.end(), [&](const Lifetime* placed) { return placed->offset > offset; });
    by_offset.insert(above, piece);
    total = std::max(total, offset + piece->bytes);
  }
  return total;
}

namespace {

int stage_of(const Boundaries& boundaries, int node) {
  return static_cast<int>(std::upper_bound(boundaries.begin(), boundaries.end(), node) - boundaries.begin()) - 1;
}

}  // namespace

std::vector<EdgePlan> make_edges(const graph::Network& network, const Boundaries& boundaries, const Schedule& schedule,
                                 int64_t largest_batch) {
  const auto live = [&](int stage) { return most_live(schedule, stage, Work::forward, Work::backward_weight); };
  std::vector<EdgePlan> edges;
  for (size_t index = 0; index < network.values.size(); ++index) {
    const graph::Value& value = network.values[index];
    if (value.producer < 0) continue;  // every stage reads the mini-batch itself
    const int producer = stage_of(boundaries, value.producer);
    std::set<int> users;
    for (const int consumer : value.consumers)
      if (const int stage = stage_of(boundaries, consumer); stage != producer) users.insert(stage);
    const size_t bytes =
        align_up(static_cast<size_t>(value.shape.with_batch(largest_batch).elements()) * tensor::size_of(value.dtype));
    for (const int user : users) {
      // What the receiver holds and one to run ahead; the sender's own backward may read the slot too.
      const int slots = std::max(live(user) + 1, live(producer));
      edges.push_back({static_cast<int>(index), false, producer, user, std::min(slots, schedule.micro_batches), bytes, 0});
    }
    if (!value.wants_gradient) continue;
    int to = producer;
    for (const int user : users) {
      // One that is read until backward_weight, or while the next arrives.
      const int slots = most_live(schedule, to, Work::backward_input, Work::backward_weight) + 1;
      edges.push_back({static_cast<int>(index), true, user, to, std::min(slots, schedule.micro_batches), bytes, 0});
      to = user;
    }
  }
  return edges;
}

}  // namespace gpipe::pipeline
