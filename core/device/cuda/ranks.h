// Ranks: the members of one NCCL group that this process holds: one of a group of processes, or both ends of a pair of GPUs that
// do not see each other's memory.
//
// Used by one thread at a time, the device's that made it. A thread beside it looks for what went wrong: a rank that reports an
// error, or work that its stream has come to and that does not end in time. It aborts all ranks then, so that no stream and no
// thread waits for ever, and the next run() or check() throws. NCCL's communicators do not block the host.
#pragma once

#include "core/device/comm.h"
#include "core/device/cuda/handles.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <nccl.h>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace gpipe::device::cuda {

class Ranks {
 public:
  struct Member {
    int device = 0;
    int rank = 0;
  };
  /// What one member does in a run: `member` is its place among those here, `peer` a rank.
  struct Work {
    enum class Kind { send, receive, sum } kind = Kind::send;
    size_t member = 0;
    int peer = 0;
    std::byte* data = nullptr;
    size_t bytes = 0;  // of f32 for sums
  };

  /// Joins; returns when all of `size` ranks have. `words` say between whom: "cuda:0 and cuda:1".
  Ranks(const GroupId& id, int size, std::vector<Member> here, double timeout_s, std::string words);
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;
  ~Ranks();

  const Member& member(size_t place) const { return here_[place].of; }
  int size() const { return size_; }

  /// All of `work` as one group, after `after`, an event of any device; then `done`, of the first member's device.
  void run(std::span<const Work> work, cudaEvent_t after, cudaEvent_t done);
  /// Of a pair, by both its ranks: sends a number each way and waits for it, because NCCL makes a way, and its memory, when it is
  /// first used.
  void try_out();
  /// The host waits for all work so far. Throws what went wrong in it.
  void wait();
  /// From any thread: aborts all ranks, as if they had failed.
  void stop() noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  struct Here {
    Member of;
    ncclComm_t handle = nullptr;  // null once it was aborted
    Stream stream;
    EventHandle arrived;  // behind its part of the latest run
  };
  /// One run, on the first member's stream.
  struct Pending {
    EventHandle started, ended;
    Clock::time_point since = Clock::time_point::max();  // when it was first seen at work
  };

  void start(const Here& here, cudaEvent_t after) const;
  ncclResult_t issue(const Work& work) const;
  void wait_until_launched(const char* call);
  ncclResult_t state(const Here& here) const;
  Pending& next_pending();
  void watch();
  void look();
  void fail(std::exception_ptr error);
  void abort() noexcept;
  bool end_well() noexcept;

  const int size_;
  const double timeout_s_;
  const std::string words_;
  std::mutex mutex_;  // of all below
  std::vector<Here> here_;
  std::deque<Pending> pending_;  // oldest first
  std::vector<Pending> spare_;
  std::exception_ptr failure_;
  std::atomic<bool> stopped_{false};
  bool quit_ = false;
  std::condition_variable quitting_;
  std::thread watcher_;
};

}  // namespace gpipe::device::cuda
