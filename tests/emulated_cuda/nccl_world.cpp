// How operations of NCCL meet: a send with the receive of the same number between the same ranks, a collective with those of the
// same number of all ranks. A send waits for its receive.
#include "tests/emulated_cuda/nccl_world.h"

#include "tests/emulated_cuda/memory.h"
#include "tests/emulated_cuda/nccl_types.h"
#include "tests/emulated_cuda/stream.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace gpipe::emulated {

namespace {

using Clock = std::chrono::steady_clock;

/// Whether the rank's work is to be dropped. With Lock.
bool stopped(const ncclComm& communicator) {
  return communicator.aborted || state().devices[static_cast<size_t>(communicator.device)].sticky != cudaSuccess;
}

std::string described(const Operation& o) {
  const std::string what = std::to_string(o.count) + " " + name_of(o.type);
  if (o.verb == Verb::all_reduce)
    return "rank " + std::to_string(o.rank) + " waits in all-reduce " + std::to_string(o.number) + " of " + what;
  return "rank " + std::to_string(o.rank) + " waits to " + (o.verb == Verb::send ? "send " : "receive ") + what +
         (o.verb == Verb::send ? " to rank " : " from rank ") + std::to_string(o.peer);
}

/// All that waits in the world, a sentence each. With Lock.
std::string all_waiting(const World& world) {
  std::vector<std::string> found;
  for (const auto* table : {&world.sends, &world.receives}) {
    for (const auto& [pair, posted] : *table) {
      for (const auto& [number, operation] : posted) found.push_back(described(*operation));
    }
  }
  for (const auto& [number, posted] : world.collectives) {
    for (const OperationPtr& operation : posted) {
      if (operation) found.push_back(described(*operation));
    }
  }
  std::sort(found.begin(), found.end());
  std::string text;
  for (const std::string& sentence : found) text += (text.empty() ? "" : "; ") + sentence;
  return text;
}

/// With Lock.
void report_deadlock(World& world, const Operation& oldest) {
  const double waited = std::chrono::duration<double>(Clock::now() - oldest.since).count();
  if (world.deadlock_reported || world.aborted || waited < state().options.nccl_timeout_s) return;
  world.deadlock_reported = true;
  report("NCCL: deadlock: " + all_waiting(world));
  std::fprintf(stderr, "emulated CUDA: %s\n", state().violations.back().c_str());
}

/// With Lock.
void post(World& world, const OperationPtr& o) {
  o->since = Clock::now();
  if (o->verb == Verb::send) world.sends[{o->rank, o->peer}][o->number] = o;
  if (o->verb == Verb::receive) world.receives[{o->peer, o->rank}][o->number] = o;
  if (o->verb != Verb::all_reduce) return;
  auto& ranks = world.collectives[o->number];
  ranks.resize(static_cast<size_t>(world.ranks));
  ranks[static_cast<size_t>(o->rank)] = o;
}

/// With Lock.
void withdraw(World& world, const Operation& o) {
  if (o.verb == Verb::send) world.sends[{o.rank, o.peer}].erase(o.number);
  if (o.verb == Verb::receive) world.receives[{o.peer, o.rank}].erase(o.number);
  const auto found = world.collectives.find(o.number);
  if (o.verb == Verb::all_reduce && found != world.collectives.end()) found->second[static_cast<size_t>(o.rank)] = nullptr;
}

/// What this rank's stream can do for `o` now: the operations that meet, taken out of the tables. Empty: nothing yet. With Lock.
std::vector<OperationPtr> take_meeting(World& world, const OperationPtr& o) {
  std::vector<OperationPtr> meeting;
  if (o->taken || o->done) return meeting;
  if (o->verb == Verb::receive) {
    auto& sends = world.sends[{o->peer, o->rank}];
    const auto found = sends.find(o->number);
    if (found == sends.end()) return meeting;
    meeting = {found->second, o};
    sends.erase(found);
    world.receives[{o->peer, o->rank}].erase(o->number);
  } else if (o->verb == Verb::all_reduce) {
    auto& posted = world.collectives[o->number];
    if (std::count(posted.begin(), posted.end(), nullptr) > 0) return meeting;
    meeting = std::move(posted);
    world.collectives.erase(o->number);
  }
  for (const OperationPtr& one : meeting) one->taken = true;
  return meeting;
}

/// False, after a report, when the two do not fit together.
bool transfer(const Operation& send, const Operation& receive) {
  if (send.count == receive.count && send.type == receive.type) {
    const size_t bytes = send.count * bytes_of(send.type);
    if (bytes != 0) std::memmove(receive.to, send.from, bytes);
    return true;
  }
  report_unlocked("NCCL: rank " + std::to_string(send.rank) + " sends " + std::to_string(send.count) + " " + name_of(send.type) +
                  ", but rank " + std::to_string(receive.rank) + " receives " + std::to_string(receive.count) + " " +
                  name_of(receive.type));
  return false;
}

/// Moves the data of operations that met; the caller holds no lock and is one of them.
void carry_out(ncclComm& communicator, const std::vector<OperationPtr>& meeting) {
  for (const OperationPtr& one : meeting) one->ready.acquire();
  const bool good = meeting.front()->verb == Verb::all_reduce ? reduce(meeting) : transfer(*meeting[0], *meeting[1]);
  for (const OperationPtr& one : meeting) one->finished.release();
  Lock lock;
  for (const OperationPtr& one : meeting) {
    one->done = true;
    ncclComm* member = communicator.world->members[static_cast<size_t>(one->rank)];
    if (!good && member) member->state = ncclInternalError;
  }
  nccl_progress().notify_all();
}

/// Waits until `condition`, looking for a deadlock meanwhile. With Lock.
template <class Condition>
void wait_for(Lock& lock, World& world, const Operation* oldest, Condition&& condition) {
  while (!condition()) {
    nccl_progress().wait_for(lock.get(), std::chrono::milliseconds(20));
    if (oldest && !condition()) report_deadlock(world, *oldest);
  }
}

/// The next meeting that this rank can carry out; empty when all are done or dropped.
std::vector<OperationPtr> next_meeting(ncclComm& communicator, const std::vector<OperationPtr>& operations) {
  Lock lock;
  World& world = *communicator.world;
  std::vector<OperationPtr> meeting;
  const auto find = [&] {
    for (const OperationPtr& o : operations) {
      if (meeting.empty()) meeting = take_meeting(world, o);
    }
    const bool done = std::all_of(operations.begin(), operations.end(), [](const OperationPtr& o) { return o->done; });
    return !meeting.empty() || done || stopped(communicator);
  };
  const auto waiting = std::find_if(operations.begin(), operations.end(), [](const OperationPtr& o) { return !o->done; });
  wait_for(lock, world, waiting == operations.end() ? nullptr : waiting->get(), find);
  return meeting;
}

}  // namespace

std::condition_variable& nccl_progress() {
  static std::condition_variable& progress = *new std::condition_variable;
  return progress;
}

void run_batch(ncclComm& communicator, const std::vector<OperationPtr>& operations, uint64_t ticket) {
  for (const OperationPtr& o : operations) {
    if (o->from)
      check_written(o->verb == Verb::send ? "ncclSend" : "ncclAllReduce", "sendbuff", o->from, o->count, bytes_of(o->type));
    o->ready.release();
  }
  {
    Lock lock;
    wait_for(lock, *communicator.world, nullptr, [&] { return communicator.serving == ticket || stopped(communicator); });
    if (!stopped(communicator)) {
      for (const OperationPtr& o : operations) post(*communicator.world, o);
    }
    nccl_progress().notify_all();
  }
  for (;;) {
    const std::vector<OperationPtr> meeting = next_meeting(communicator, operations);
    if (meeting.empty()) break;
    carry_out(communicator, meeting);
  }
  {
    Lock lock;
    for (const OperationPtr& o : operations) {
      if (!o->done && !o->taken) withdraw(*communicator.world, *o);
    }
    wait_for(lock, *communicator.world, nullptr, [&] {  // a partner that has it in hand is let finish
      return std::all_of(operations.begin(), operations.end(), [](const OperationPtr& o) { return o->done || !o->taken; });
    });
    ++communicator.serving;
    nccl_progress().notify_all();
  }
  for (const OperationPtr& o : operations) o->finished.acquire();
}

void abort_all_communicators() {
  Lock lock;
  for (auto& [handle, object] : state().objects) {
    if (object.kind != Kind::communicator) continue;
    auto* communicator = static_cast<ncclComm*>(object.body.get());
    communicator->aborted = true;
    communicator->world->aborted = true;
  }
  forget_ids();
  nccl_progress().notify_all();
}

}  // namespace gpipe::emulated
