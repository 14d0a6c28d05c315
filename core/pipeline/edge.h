// Edge: where a value, or its gradient, goes from the stage that has it to the stage that uses it.
//
// The slots lie in the receiver's arena; the sender writes its result straight into one, so nothing is copied between
// stages of one process. Micro-batch i uses slot i % slots. Two counters that only grow within a mini-batch say how far
// sender and receiver are; both go through the micro-batches in ascending order. One sender thread, one receiver thread.
//
// Where devices queue their work, a slot has two events beside the counters, recorded before they grow: the counters say
// that the other side has queued its work, the events that it is done.
#pragma once

#include "core/device/backend.h"

#include <atomic>
#include <cstddef>
#include <limits>
#include <memory>
#include <vector>

namespace gpipe::pipeline {

/// Thrown in a stage that waits when another stage has failed; never leaves the engine.
struct Aborted {};

/// What an edge is, without its counters: part of the plan.
struct EdgePlan {
  int value = -1;         // index in the network
  bool gradient = false;  // carries dL/d(value), backwards
  int from = 0, to = 0;   // stages
  int slots = 1;
  size_t slot_bytes = 0;  // of the largest micro-batch, a multiple of 64
  size_t offset = 0;      // of slot 0 in the receiver's arena
  /// The sender's device does not reach the receiver's memory: it writes into slots of its own, which are sent.
  bool sent = false;
  size_t sender_offset = 0;  // of these, in the sender's arena
};

class Edge {
 public:
  /// Before the first mini-batch.
  void open(int slots, device::Backend& sender, device::Backend& receiver) {
    slots_ = slots;
    if (sender.is_host()) return;
    for (int slot = 0; slot < slots; ++slot) {
      filled_.push_back(sender.make_event());
      freed_.push_back(receiver.make_event());
    }
  }
  /// On devices that queue their work: of the slot of a micro-batch.
  device::Event& filled(int micro) const { return *filled_[static_cast<size_t>(micro % slots_)]; }
  device::Event& freed(int micro) const { return *freed_[static_cast<size_t>(micro % slots_)]; }

  /// Between mini-batches only, while no stage runs.
  void reset() {
    published_.store(0, std::memory_order_relaxed);
    released_.store(0, std::memory_order_relaxed);
  }

  void wait_writable(int micro) const { wait_until(released_, micro - slots_ + 1); }  // sender: the slot is free
  void publish(int micro) { advance(published_, micro + 1); }                         // sender: the slot is filled
  void wait_readable(int micro) const { wait_until(published_, micro + 1); }          // receiver
  void release(int micro) { advance(released_, micro + 1); }                          // receiver: the slot may be reused

  /// From any thread: every wait, now and later, throws Aborted.
  void abort() {
    for (std::atomic<int>* counter : {&published_, &released_}) {
      counter->store(k_aborted, std::memory_order_release);
      counter->notify_all();
    }
  }

 private:
  static constexpr int k_aborted = std::numeric_limits<int>::max();

  static void wait_until(const std::atomic<int>& counter, int wanted) {
    int now = counter.load(std::memory_order_acquire);
    while (now < wanted) {
      counter.wait(now, std::memory_order_acquire);
      now = counter.load(std::memory_order_acquire);
    }
    if (now == k_aborted) throw Aborted{};
  }
  static void advance(std::atomic<int>& counter, int to) {
    int now = counter.load(std::memory_order_relaxed);
    while (now != k_aborted && !counter.compare_exchange_weak(now, to, std::memory_order_release)) {}
    counter.notify_all();
  }

  std::atomic<int> published_{0};
  std::atomic<int> released_{0};
  int slots_ = 1;
  std::vector<std::unique_ptr<device::Event>> filled_, freed_;
};

}  // namespace gpipe::pipeline
