// How many slots each edge needs so that no row of the schedule waits for ever.
#include "core/pipeline/program.h"

#include <algorithm>

namespace gpipe::pipeline {
namespace {

bool hands_on(Work work) { return work != Work::recompute && work != Work::backward_weight; }

/// All devices walking their rows, each task done as soon as its edges let it.
class SlotWalk {
 public:
  SlotWalk(const Schedule& schedule, std::vector<EdgePlan>& edges)
      : schedule_(schedule),
        edges_(edges),
        at_(schedule.rows.size(), 0),
        published_(edges.size(), 0),
        released_(edges.size(), 0) {
    in_.resize(static_cast<size_t>(schedule.stages));
    out_.resize(in_.size());
    split_.assign(in_.size(), false);
    for (size_t edge = 0; edge < edges.size(); ++edge) {
      in_[static_cast<size_t>(edges[edge].to)].push_back(edge);
      out_[static_cast<size_t>(edges[edge].from)].push_back(edge);
    }
    for (const auto& row : schedule.rows)
      for (const Task& task : row)
        if (task.work == Work::backward_weight) split_[static_cast<size_t>(task.stage)] = true;
  }

  void run() {
    for (;;) {
      bool moved = false;
      for (size_t device = 0; device < at_.size(); ++device)
        while (advance(device)) moved = true;
      if (!moved && !widen()) return;
    }
  }

 private:
  bool is_last(size_t device) const { return at_[device] == schedule_.rows[device].size(); }
  const Task& task(size_t device) const { return schedule_.rows[device][at_[device]]; }

  template <class F>
  bool all_edges(const Task& t, const std::vector<std::vector<size_t>>& of, F&& good) const {
    const auto& list = of[static_cast<size_t>(t.stage)];
    return !hands_on(t.work) || std::all_of(list.begin(), list.end(), [&](size_t edge) {
      return edges_[edge].gradient == (t.work == Work::forward) || good(edge);
    });
  }
  bool writable(size_t edge, int micro) const { return released_[edge] > micro - edges_[edge].slots; }
  bool readable(const Task& t) const {
    return all_edges(t, in_, [&](size_t edge) { return published_[edge] > t.micro; });
  }

  bool advance(size_t device) {
    if (is_last(device)) return false;
    const Task& t = task(device);
    if (!readable(t) || !all_edges(t, out_, [&](size_t edge) { return writable(edge, t.micro); })) return false;
    all_edges(t, out_, [&](size_t edge) { return ++published_[edge] > 0; });
    const bool frees =
        t.work == Work::backward_weight || (hands_on(t.work) && t.work != Work::forward && !split_[static_cast<size_t>(t.stage)]);
    if (frees)
      for (const size_t edge : in_[static_cast<size_t>(t.stage)]) ++released_[edge];
    ++at_[device];
    return true;
  }

  /// One more slot for each edge that alone holds a device back. False when there is none: all rows are done.
  bool widen() {
    bool any = false;
    for (size_t device = 0; device < at_.size(); ++device) {
      if (is_last(device) || !readable(task(device))) continue;
      const Task& t = task(device);
      all_edges(t, out_, [&](size_t edge) {
        if (!writable(edge, t.micro)) {
          ++edges_[edge].slots;
          any = true;
        }
        return true;
      });
    }
    return any;
  }

  const Schedule& schedule_;
  std::vector<EdgePlan>& edges_;
  std::vector<size_t> at_;                     // by device
  std::vector<int> published_, released_;      // by edge
  std::vector<std::vector<size_t>> in_, out_;  // by stage
  std::vector<bool> split_;                    // by stage
};

}  // namespace

void widen_edges(const Schedule& schedule, std::vector<EdgePlan>& edges) { SlotWalk(schedule, edges).run(); }

}  // namespace gpipe::pipeline
