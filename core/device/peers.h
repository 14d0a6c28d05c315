// Peers: the processes of one run, and the messages between them through memory of the host.
//
// All processes do the same steps with the same numbers; each has some devices of the pipeline. A message is matched by sender,
// receiver and tag, in the order of the calls. Calls may be made from any thread. What waits here ends when another process gives
// up, with what that one told, or after `timeout` seconds.
#pragma once

#include "core/base/error.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace gpipe::device {

class Peers {
 public:
  /// A message on its way; 0: none.
  struct Request {
    uintptr_t handle = 0;
    bool receives = false;
  };
  static constexpr int first_tag = 8;  // for users; those below are for what is made of messages here, and by leaves

  explicit Peers(double timeout_s) : timeout_s_(timeout_s) {}
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;
  virtual ~Peers() = default;

  void set_timeout(double seconds) { timeout_s_ = seconds; }
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// How many of the processes run on this machine, this one included.
  virtual int on_this_machine() const = 0;
  /// `data` stays as it is, and is there, until the request is done.
  virtual Request send(std::span<const std::byte> data, int to, int tag) = 0;
  virtual Request receive(std::span<std::byte> data, int from, int tag) = 0;
  /// Whether the message is through; the request is empty then.
  virtual bool done(Request& request) = 0;
  /// Nobody waits for the message any more: what is received is no longer written, what is sent may still be read.
  virtual void drop(Request& request) noexcept = 0;
  /// Tells all others that this process ends, and why; they hear of the first call alone. Before its engine goes, whose end
  /// others may wait for.
  virtual void give_up(base::ExitCode code, const std::string& why) noexcept = 0;
  /// Throws what another process told that gave up: an error with its exit code and its words.
  virtual void check() = 0;

  /// Until the message is through, or `stopped` is set. PeerError after the timeout; it is dropped then, as after check().
  void wait(Request& request, const std::atomic<bool>* stopped = nullptr);

  // By all processes, in the same order.
  /// The sum over processes, in their order; the same bits for all.
  void sum(std::span<double> values);
  bool any(bool mine);
  /// What process 0 has.
  void broadcast(std::span<std::byte> data);
  std::string broadcast(std::string text);

 private:
  double timeout_s_;
};

/// How many processes a launcher says that it started together with this one; 1 without a launcher.
int launched_processes();
/// The processes that mpirun or srun started together with this one; null when it is alone. PeerError when they cannot be joined.
std::shared_ptr<Peers> open_peers(double timeout_s);

}  // namespace gpipe::device
