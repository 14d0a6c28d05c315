#include "core/pipeline/gap_fill.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace gpipe::pipeline {

// The heuristic of Qi et al. 2023, section 3.1: as many forwards ahead as memory allows, then a forward and a backward in turn,
// weight gradients where a device would wait or memory is short. What section 3.1 leaves open is tried, and the best kept: how
// many forwards each stage goes ahead of the next (one, two, or as many as fit before its first gradient can be there), and
// whether the last stage goes ahead at all. zb_h1 and zb_h2 are among what is tried, where memory allows.
//
// A stage never goes more than two forwards ahead of the next: with three, the rows would need a channel that holds a message
// (check_schedule), as neighbours then cannot hand over forwards and gradients in turn.
namespace {

/// By stage: the forwards before the first pair.
std::vector<int> forwards_ahead(const ScheduleRequest& request, double more_than_next, int last) {
  const int most = static_cast<int>(std::floor(std::min(request.memory_limit, 1e6) * (1 + 1e-9))) - 1;
  std::vector<int> ahead(static_cast<size_t>(request.devices));
  double fit = last;  // what would fill the time until the first gradient
  for (size_t s = ahead.size(); s-- > 0;) {
    if (s + 1 < ahead.size()) {
      const StageCost& next = request.costs[s + 1];
      const double round_trip = next.forward + next.recompute + next.backward_input + 2 * request.transfer;
      const double forward = request.costs[s].forward;
      fit += more_than_next > 0 ? more_than_next : forward > 0 ? round_trip / forward : 2;
    }
    const int fitting = static_cast<int>(std::floor(std::min(fit, 1e6) + 1e-9));
    ahead[s] = s + 1 < ahead.size() ? std::clamp(fitting, ahead[s + 1] + 1, ahead[s + 1] + 2) : fitting;
    ahead[s] = std::max(0, std::min(ahead[s], most));
  }
  return ahead;
}

Schedule in_turn(const ScheduleRequest& request, const std::vector<int>& ahead) {
  Schedule order{request.devices, request.devices, request.micro_batches, devices_of_stages(request.devices, 1, false), {}};
  for (int device = 0; device < request.devices; ++device) {
    auto& row = order.rows.emplace_back();
    const int first = ahead[static_cast<size_t>(device)];
    for (int forward = 0, backward = 0; backward < request.micro_batches;) {
      if (forward < request.micro_batches && forward <= first + backward)
        row.push_back({Work::forward, forward++, device});
      else
        row.push_back({Work::backward_input, backward++, device});
    }
  }
  return order;
}

}  // namespace

Schedule make_zb_auto(const ScheduleRequest& asked) {
  const ScheduleRequest request = complete(asked, 1);
  std::set<std::vector<int>> tried;
  FilledSchedule best;
  for (const double more_than_next : {1.0, 2.0, 0.0})
    for (const int last : {0, 1}) {
      const auto ahead = forwards_ahead(request, more_than_next, last);
      if (!tried.insert(ahead).second) continue;
      keep_better(best, fill_gaps(request, in_turn(request, ahead)));
    }
  return std::move(best.schedule);
}

}  // namespace gpipe::pipeline
