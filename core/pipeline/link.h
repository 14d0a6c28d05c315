// Link: the way from one device of the pipeline to one of another process; each of the two processes holds its end.
//
// Messages arrive in the order in which they are sent. On a host they go through Peers; GPUs send by NCCL (comm.h), which their
// queues wait for. Used by the thread of the device here.
#pragma once

#include "core/device/comm.h"
#include "core/device/peers.h"

#include <atomic>
#include <memory>

namespace gpipe::pipeline {

using tensor::TensorView;

class Link {
 public:
  /// One message on its way from or to a piece of memory.
  struct Transit {
    device::Peers::Request request;        // of hosts
    std::unique_ptr<device::Event> event;  // of devices that queue
    bool pending = false;
  };

  Link() = default;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  virtual ~Link() = default;

  virtual void send(const TensorView& from, Transit& transit) = 0;
  virtual void receive(const TensorView& to, Transit& transit) = 0;
  /// What the device does from now on comes after the message is through. Nothing if none is on its way.
  virtual void wait(Transit& transit) = 0;
  /// When the engine goes: nothing may be written to the memory any more.
  virtual void drop(Transit& transit) noexcept = 0;
  /// From any thread, after something failed: what waits for the other process does not any more.
  virtual void abort() noexcept = 0;

  /// A message that is waited for.
  void send_now(const TensorView& from) {
    send(from, now_);
    wait_now();
  }
  void receive_now(const TensorView& to) {
    receive(to, now_);
    wait_now();
  }

 private:
  void wait_now() {
    try {
      wait(now_);
    } catch (...) {
      drop(now_);
      throw;
    }
  }
  Transit now_;
};

/// Both processes make their ends of all their links in the same order. `number` counts links; `here` is the device of this
/// process; `peer` the other's process.
std::unique_ptr<Link> open_link(device::Peers& peers, device::Backend& here, bool sends, int peer, int number,
                                const std::atomic<bool>& aborted);

}  // namespace gpipe::pipeline
