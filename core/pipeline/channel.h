// Channel: what crosses the cuts from one device of the pipeline to a device of another process; each process has its end.
//
// Everything goes in one order, that of the sender's row, so that the receiver knows what comes next without being told. It asks
// for what it waits for and for one message more: what a GPU was asked for occupies some of its processors until it comes.
// On the thread of the device here.
#pragma once

#include "core/pipeline/link.h"
#include "core/pipeline/plan.h"

#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace gpipe::pipeline {

class Channel {
 public:
  /// An ordered pair of devices.
  struct Ends {
    int from = 0, to = 0;
    auto operator<=>(const Ends&) const = default;
  };
  /// The memory of an edge's slot for a micro-batch, as large as what goes through it.
  using SlotView = std::function<TensorView(int edge, int micro)>;

  Channel(const Plan& plan, Ends ends, std::unique_ptr<Link> link, SlotView view);
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;
  ~Channel();

  /// Before the tasks of a mini-batch.
  void begin(bool training);
  // Of the sender, as of an Edge.
  void wait_writable(int edge, int micro) { link_->wait(transit(edge, micro)); }
  void publish(int edge, int micro) { link_->send(view_(edge, micro), transit(edge, micro)); }
  // Of the receiver.
  void wait_readable(int edge, int micro);
  void release(int edge, int micro);

  /// Between mini-batches: one tensor outside of all slots. From any thread: to abort it.
  Link& link() { return *link_; }

 private:
  struct Item {
    int edge = 0, micro = 0;
  };
  std::vector<Item> agenda(Ends ends, bool training) const;
  bool has_room_for(const Item& item);
  void ask();
  Link::Transit& transit(int edge, int micro) {
    auto& all = transits_[edge];
    return all[static_cast<size_t>(micro) % all.size()];
  }

  const Plan& plan_;
  std::unique_ptr<Link> link_;
  SlotView view_;
  std::vector<Item> training_, evaluation_;
  const std::vector<Item>* now_ = nullptr;
  size_t next_ = 0;                                     // item that was not asked for
  std::map<int, std::vector<Link::Transit>> transits_;  // by edge, a slot each
  std::map<int, int> released_, asked_;                 // by edge: micro-batches
};

/// All pairs of devices of different processes that have something for each other, in the same order for all processes: edges,
/// and tied parameters both ways.
std::vector<Channel::Ends> remote_pairs(const Plan& plan);

}  // namespace gpipe::pipeline
