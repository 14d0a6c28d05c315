#include "core/base/error.h"
#include "core/pipeline/gap_fill.h"

#include <algorithm>
#include <cmath>

namespace gpipe::pipeline {

// Two stages a device, there and back again (Qi et al. 2023, section 6): device d has stages d and 2K-1-d, so the last stage
// stands beside the first, gradients start where forwards came in, and all devices hold the same. K = 2, M = 4, time to the
// right (f, b, w: stages 0 and 1; F, B, W: stages 2 and 3):
//
//   device 0  f0 f1 f2 F0 B0 W0 F1 B1 W1 f3 b0 w0 F2 B2 W2 b1 w1 F3 B3 b2 W3 b3 w2 w3
//   device 1     f0 F0 f1 F1 B0 W0 f2 b0 w0 F2 B1 W1 f3 b1 w1 F3 B2 b2 B3 b3 W2 w2 W3 w3
//
// Forwards until the first gradient is back, in both chunks as they come; then in rounds a backward and a forward on each
// device: the early chunk's backward when its gradient is there, else the late chunk's; the late chunk's forward when its input
// is there, else the early chunk's.
namespace {

class Rounds {
 public:
  explicit Rounds(const ScheduleRequest& request)
      : devices_(request.devices),
        micro_batches_(request.micro_batches),
        places_(static_cast<int>(std::min(2.0 * devices_, std::floor(2 * request.memory_limit * (1 + 1e-9))))),
        order_{devices_, 2 * devices_, micro_batches_, devices_of_stages(devices_, 2, true), {}},
        forwards_(order_.device_of.size(), 0),
        backwards_(order_.device_of.size(), 0) {
    order_.rows.resize(static_cast<size_t>(devices_));
  }

  Schedule operator()() {
    for (int device = 0; device < devices_; ++device) first_forwards(device);
    const size_t all = 4 * static_cast<size_t>(micro_batches_);
    const auto unfinished = [&](const auto& row) { return row.size() < all; };
    while (std::any_of(order_.rows.begin(), order_.rows.end(), unfinished)) {
      const bool back = backward_round();
      GP_CHECK(forward_round() || back);
    }
    return std::move(order_);
  }

 private:
  int stage(int device, int chunk) const { return chunk == 0 ? device : 2 * devices_ - 1 - device; }
  int& forwards(int stage) { return forwards_[static_cast<size_t>(stage)]; }
  int& backwards(int stage) { return backwards_[static_cast<size_t>(stage)]; }
  int live(int stage) { return forwards(stage) - backwards(stage); }
  void put(Work work, int device, int stage) {
    int& count = work == Work::forward ? forwards(stage) : backwards(stage);
    order_.rows[static_cast<size_t>(device)].push_back({work, count++, stage});
  }

  /// With equal costs, device d has time for 2(K-1-d) + 1 forwards of the early chunk before the late chunk's first comes.
  void first_forwards(int device) {
    const int early = std::min(2 * (devices_ - 1 - device) + 1, places_ - 1);
    for (int i = 0; i < places_; ++i) {
      const int s = stage(device, i >= early && (i - early) % 2 == 0 ? 1 : 0);
      if (forwards(s) < micro_batches_) put(Work::forward, device, s);
    }
  }

  bool may_go_back(int s) { return backwards(s) < forwards(s) && (s == 2 * devices_ - 1 || backwards(s + 1) > backwards(s)); }
  /// The early chunk leaves the last place to the late one, without which nothing would go back; unless one of its own
  /// gradients is on its way, which takes no place to arrive.
  bool may_go_forward(int s, int device) {
    if (forwards(s) == micro_batches_ || (s > 0 && forwards(s - 1) == forwards(s))) return false;
    const int early = stage(device, 0);
    const int late = stage(device, 1);
    if (live(early) + live(late) == places_) return false;
    return s == late || live(early) < places_ - 1 || backwards(late) > backwards(early);
  }

  bool backward_round() {
    std::vector<bool> late(static_cast<size_t>(devices_));
    for (int d = 0; d < devices_; ++d) late[static_cast<size_t>(d)] = !may_go_back(stage(d, 0));
    bool moved = false;
    const auto put_if = [&](int device, int chunk) {
      if (late[static_cast<size_t>(device)] != (chunk == 1) || !may_go_back(stage(device, chunk))) return;
      put(Work::backward_input, device, stage(device, chunk));
      moved = true;
    };
    for (int d = 0; d < devices_; ++d) put_if(d, 1);
    for (int d = devices_ - 1; d >= 0; --d) put_if(d, 0);
    return moved;
  }

  bool forward_round() {
    std::vector<bool> late(static_cast<size_t>(devices_));
    for (int d = 0; d < devices_; ++d) late[static_cast<size_t>(d)] = may_go_forward(stage(d, 1), d);
    bool moved = false;
    const auto put_if = [&](int device, int chunk) {
      if (late[static_cast<size_t>(device)] != (chunk == 1) || !may_go_forward(stage(device, chunk), device)) return;
      put(Work::forward, device, stage(device, chunk));
      moved = true;
    };
    for (int d = 0; d < devices_; ++d) put_if(d, 0);
    for (int d = devices_ - 1; d >= 0; --d) put_if(d, 1);
    return moved;
  }

  int devices_, micro_batches_;
  int places_;  // stages' activations that a device may hold
  Schedule order_;
  std::vector<int> forwards_, backwards_;  // done, by stage
};

}  // namespace

Schedule make_zb_v(const ScheduleRequest& asked) {
  const ScheduleRequest request = complete(asked, 2);
  return fill_gaps(request, Rounds(request)()).schedule;
}

}  // namespace gpipe::pipeline
