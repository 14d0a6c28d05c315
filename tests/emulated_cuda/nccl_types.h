// What a communicator of NCCL is here: ranks of one process that meet in a World.
#pragma once

#include "tests/emulated_cuda/state.h"

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <nccl.h>
#include <string>
#include <utility>
#include <vector>

namespace gpipe::emulated {

enum class Verb { send, receive, all_reduce };

/// One operation of one rank, from its call until it is done.
struct Operation {
  Verb verb = Verb::send;
  int rank = 0;
  int peer = 0;  // of send and receive
  const void* from = nullptr;
  void* to = nullptr;
  size_t count = 0;
  ncclDataType_t type = ncclFloat32;
  ncclRedOp_t reduction = ncclSum;
  uint64_t number = 0;  // the n-th of its kind between this pair, or of this rank's collectives
  bool taken = false;   // its partner has it in hand
  bool done = false;
  Edge ready;     // its stream has come to it
  Edge finished;  // its partner is done with its memory
  std::chrono::steady_clock::time_point since;
};
using OperationPtr = std::shared_ptr<Operation>;

/// The ranks of one unique id. Under Lock.
struct World {
  int ranks = 0;
  std::vector<ncclComm*> members;  // null until it joined
  int joined = 0;
  bool aborted = false;  // by any rank: what waits then is no longer called a deadlock
  bool deadlock_reported = false;
  std::map<std::pair<int, int>, uint64_t> sends_issued, receives_issued;  // by (from, to)
  std::map<std::pair<int, int>, std::map<uint64_t, OperationPtr>> sends;  // posted, by number
  std::map<uint64_t, std::vector<OperationPtr>> collectives;              // posted, by number and rank
  std::map<std::pair<int, int>, std::map<uint64_t, OperationPtr>> receives;
};

/// All that one rank does in one group, on one stream.
struct Batch {
  ncclComm* communicator = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<OperationPtr> operations;
};

size_t bytes_of(ncclDataType_t type);
const char* name_of(ncclDataType_t type);

/// Numbers the operations and puts them on their stream. Without Lock.
ncclResult_t launch(const Batch& batch);
/// Posts, waits for partners and moves the data. Runs on a stream.
void run_batch(ncclComm& communicator, const std::vector<OperationPtr>& operations, uint64_t ticket);

/// Reduces what all ranks gave, in rank order, into every rank's memory; false, after a report, when they do not fit together.
bool reduce(const std::vector<OperationPtr>& operations);

/// Reports "CALL: WHY", keeps it for ncclGetLastError. Without Lock.
ncclResult_t refuse_nccl(const char* call, ncclResult_t result, const std::string& why);

/// Makes all unique ids unknown. With Lock.
void forget_ids();

/// Everything that waits looks again.
std::condition_variable& nccl_progress();

ncclComm* find_communicator(const char* call, ncclComm_t handle);  // with Lock
int device_of(ncclComm_t handle);

/// Inside of ncclGroupStart and ncclGroupEnd, `work` is done at the end of the group. Else at once.
bool in_group();
void at_group_end(std::function<ncclResult_t()> work);

}  // namespace gpipe::emulated

struct ncclComm {
  std::shared_ptr<gpipe::emulated::World> world;
  int rank = 0;
  int device = 0;
  bool blocking = true;
  ncclResult_t state = ncclSuccess;  // what ncclCommGetAsyncError says
  bool aborted = false;
  bool finalized = false;
  uint64_t tickets = 0;  // batches issued
  uint64_t serving = 0;  // batches done: they run in the order of issue
  uint64_t collectives_issued = 0;
  int polls_left = 0;                            // until deferred work of a communicator that does not block is done
  std::vector<gpipe::emulated::Batch> deferred;  // not yet on its stream
};
