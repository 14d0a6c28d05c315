// Transfers: what a device of the pipeline does together with other GPUs.
//
// Between GPUs that see each other's memory these are copies, which take no processors of either. Between others in this process,
// and between processes, they are NCCL's, which finds the best way there is; the way of a pair is a group of two ranks that are
// both here, so that one call starts both ends and no order of calls can deadlock.
#pragma once

#include "core/device/comm.h"
#include "core/device/cuda/context.h"
#include "core/device/cuda/event.h"
#include "core/device/cuda/ranks.h"

#include <map>
#include <memory>
#include <vector>

namespace gpipe::device::cuda {

/// An id for a group; `device` is for the message if there is none.
GroupId make_group(int device);

class Transfers {
 public:
  Transfers(Context& context, double timeout_s) : context_(context), timeout_s_(timeout_s) {}

  /// As Backend has them; `other` is another GPU.
  void connect(int other);
  void send(const TensorView& from, int receiver, std::byte* to, cudaEvent_t done);
  void receive(int owner, const TensorView& from, const TensorView& to);
  std::unique_ptr<Comm> join(const GroupId& id, int rank, int size);
  /// The host waits for all of them so far. Throws what went wrong in any.
  void wait();

  // For members of groups (join), while they live.
  void add(Ranks& ranks) { groups_.push_back(&ranks); }
  void remove(const Ranks& ranks) { std::erase(groups_, &ranks); }
  /// An event behind all that the device's queue holds now.
  cudaEvent_t queue_so_far();

 private:
  int device() const { return context_.device(); }
  bool sees(int other);
  /// The way between this GPU (rank 0) and one that it does not see (rank 1).
  Ranks& link(int other);
  void through_link(int other, Ranks::Work::Kind mine, const TensorView& here, std::byte* there, cudaEvent_t done);

  Context& context_;
  const double timeout_s_;
  std::map<int, bool> seen_;  // GPUs that sees() was asked for
  std::map<int, std::unique_ptr<Ranks>> links_;
  std::vector<Ranks*> groups_;
  std::unique_ptr<CudaEvent> ready_, received_;
};

}  // namespace gpipe::device::cuda
