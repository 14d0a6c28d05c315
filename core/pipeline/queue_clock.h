// QueueClock: when pieces of work ran on a device that queues them, by events before and after each.
#pragma once

#include "core/device/backend.h"

#include <chrono>
#include <memory>
#include <vector>

namespace gpipe::pipeline {

class QueueClock {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit QueueClock(device::Backend& backend) : backend_(backend), zero_(backend.make_event()) {}

  /// Forgets all pieces. Times are right if the queue is empty now, durations always.
  void begin() {
    used_ = 0;
    backend_.record(*zero_);
    zero_time_ = std::chrono::steady_clock::now();
  }
  /// A piece of work starts, or ends, at this place of the queue.
  void start() {
    if (used_ == pieces_.size()) pieces_.push_back({backend_.make_event(), backend_.make_event()});
    backend_.record(*pieces_[used_].start);
  }
  void end() { backend_.record(*pieces_[used_++].end); }

  size_t count() const { return used_; }
  // Of a piece that has run, as Backend::synchronize says.
  Time started(size_t piece) const { return at(*pieces_[piece].start); }
  Time ended(size_t piece) const { return at(*pieces_[piece].end); }
  double seconds(size_t piece) const { return backend_.seconds_between(*pieces_[piece].start, *pieces_[piece].end); }

 private:
  struct Piece {
    std::unique_ptr<device::Event> start, end;
  };
  Time at(const device::Event& event) const {
    const std::chrono::duration<double> since(backend_.seconds_between(*zero_, event));
    return zero_time_ + std::chrono::duration_cast<Time::duration>(since);
  }

  device::Backend& backend_;
  std::unique_ptr<device::Event> zero_;
  Time zero_time_{};
  std::vector<Piece> pieces_;
  size_t used_ = 0;
};

}  // namespace gpipe::pipeline
