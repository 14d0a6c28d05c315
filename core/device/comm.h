// Comm: one member of a group of devices that send to each other and add up, in one process or in several.
//
// Whoever starts the members makes a GroupId and gives it to all of them; each joins with its rank (Backend::join) from a thread
// or process of its own. Work goes to a queue of the group, beside the device's own: it starts after what the device's queue
// holds when it is called, and events say when it is done. What went wrong is thrown by the next call, or by
// Backend::synchronize(). Calls are made by the thread of the device. The backend must outlive its members.
#pragma once

#include "core/device/backend.h"

#include <array>
#include <span>

namespace gpipe::device {

/// What the members of a group find each other by; plain bytes, to be sent as they are.
struct GroupId {
  std::array<char, 128> bytes{};
};

class Comm {
 public:
  /// One way of what an exchange moves: `view` goes to, or comes from, the member of rank `peer`.
  struct Message {
    TensorView view;
    int peer = 0;
    bool receives = false;
  };

  Comm() = default;
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;
  virtual ~Comm() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// All messages at once, so that no order among them can deadlock. Two members' messages to each other meet in the order of
  /// their calls, and must have the same number of bytes. Then `done`, an event of this device.
  virtual void exchange(std::span<const Message> messages, Event& done) = 0;
  /// x [any shape], f32, becomes the sum of all members' x, the same bits for all of them; called by all. Then `done`.
  virtual void sum(const TensorView& x, Event& done) = 0;
  /// From any thread: no work waits for other members any more, and the next call throws PeerError.
  virtual void abort() noexcept = 0;
};

}  // namespace gpipe::device
