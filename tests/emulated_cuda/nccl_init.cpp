// NCCL: making, finishing and aborting communicators; what they say.
#include "tests/emulated_cuda/nccl_types.h"
#include "tests/emulated_cuda/stream.h"

#include <algorithm>
#include <cstring>

namespace gpipe::emulated {

namespace {

thread_local std::string thread_message;

/// The worlds of unique ids that were given out. With Lock.
std::map<uint64_t, std::shared_ptr<World>>& worlds() {
  static auto& all = *new std::map<uint64_t, std::shared_ptr<World>>;
  return all;
}

struct IdContent {
  char magic[8];
  uint64_t number;
};
constexpr char kMagic[8] = {'g', 'p', 'i', 'p', 'e', 'i', 'd', 0};

bool read_config(const ncclConfig_t* config, bool& blocking) {
  const ncclConfig_t sample = NCCL_CONFIG_INITIALIZER;
  blocking = true;
  if (!config) return true;
  if (config->magic != sample.magic || config->size != sample.size) return false;
  if (config->blocking != NCCL_CONFIG_UNDEF_INT && config->blocking != 0 && config->blocking != 1) return false;
  blocking = config->blocking != 0;
  return true;
}

/// Adds a rank to its world. With Lock. "" or why not.
std::string join(const std::shared_ptr<World>& world, const std::shared_ptr<ncclComm>& made, int ranks) {
  if (world->ranks == 0) {
    world->ranks = ranks;
    world->members.resize(static_cast<size_t>(ranks));
  }
  if (world->ranks != ranks) return "ranks of one id disagree on their number";
  ncclComm*& place = world->members[static_cast<size_t>(made->rank)];
  if (place) return "rank " + std::to_string(made->rank) + " joined twice";
  for (const ncclComm* member : world->members) {
    if (member && member->device == made->device) return "device " + std::to_string(made->device) + " has two ranks";
  }
  place = made.get();
  made->world = world;
  ++world->joined;
  add_object(made.get(), Kind::communicator, made->device, made);
  nccl_progress().notify_all();
  return "";
}

/// Blocks until all ranks joined.
ncclResult_t wait_for_all(ncclComm& communicator) {
  Lock lock;
  const World& world = *communicator.world;
  const auto limit = std::chrono::duration<double>(state().options.nccl_timeout_s);
  const bool complete =
      nccl_progress().wait_for(lock.get(), limit, [&] { return world.joined == world.ranks || communicator.aborted; });
  if (complete) return communicator.aborted ? ncclInternalError : ncclSuccess;
  report("ncclCommInitRankConfig: rank " + std::to_string(communicator.rank) + " waits, but only " +
         std::to_string(world.joined) + " of " + std::to_string(world.ranks) + " ranks came");
  return ncclSystemError;
}

ncclResult_t init_rank(ncclComm_t* out, int ranks, const ncclUniqueId& id, int rank, const ncclConfig_t* config) {
  const char* call = "ncclCommInitRankConfig";
  bool blocking = true;
  if (!out || ranks < 1 || rank < 0 || rank >= ranks) {
    return refuse_nccl(call, ncclInvalidArgument, "there is no rank " + std::to_string(rank) + " of " + std::to_string(ranks));
  }
  if (!read_config(config, blocking))
    return refuse_nccl(call, ncclInvalidArgument, "the config is not from NCCL_CONFIG_INITIALIZER");
  IdContent content;
  std::memcpy(&content, id.internal, sizeof content);
  auto made = std::make_shared<ncclComm>();
  made->rank = rank;
  made->device = current_device();
  made->blocking = blocking;
  std::string fault;
  {
    Lock lock;
    const auto world = worlds().find(content.number);
    const bool known = std::memcmp(content.magic, kMagic, sizeof kMagic) == 0 && world != worlds().end();
    fault = known ? join(world->second, made, ranks) : "the id is not from ncclGetUniqueId";
  }
  if (!fault.empty()) return refuse_nccl(call, ncclInvalidUsage, fault);
  *out = made.get();
  if (!blocking) {
    {
      Lock lock;
      made->state = ncclInProgress;
      made->polls_left = 2;
    }
    if (in_group()) at_group_end([] { return ncclInProgress; });
    return ncclInProgress;
  }
  if (in_group()) {
    at_group_end([made] { return wait_for_all(*made); });
    return ncclSuccess;
  }
  return wait_for_all(*made);
}

ncclResult_t init_all(ncclComm_t* out, int count, const int* list) {
  const char* call = "ncclCommInitAll";
  if (!out || count < 1) return refuse_nccl(call, ncclInvalidArgument, "no communicator is wanted");
  auto world = std::make_shared<World>();
  std::string fault;
  {
    Lock lock;
    const auto devices = static_cast<int>(state().devices.size());
    for (int i = 0; i < count && fault.empty(); ++i) {
      auto made = std::make_shared<ncclComm>();
      made->rank = i;
      made->device = list ? list[i] : i;
      if (made->device < 0 || made->device >= devices) {
        fault = "there is no device " + std::to_string(made->device);
      } else {
        fault = join(world, made, count);
        out[i] = made.get();
      }
    }
    if (!fault.empty()) {
      for (ncclComm* member : world->members) {
        if (member) state().objects[member].alive = false;
      }
    }
  }
  return fault.empty() ? ncclSuccess : refuse_nccl(call, ncclInvalidUsage, fault);
}

bool quiet_now(const ncclComm& communicator) {
  return communicator.serving == communicator.tickets && communicator.deferred.empty();
}

/// Blocks until the rank's batches are done.
void wait_until_quiet(ncclComm& communicator) {
  Lock lock;
  nccl_progress().wait(lock.get(), [&] { return quiet_now(communicator) || communicator.aborted; });
}

/// One look at a communicator that does not block: this is what moves its work on. Without Lock.
ncclResult_t poll(ncclComm& communicator) {
  std::vector<Batch> batches;
  {
    Lock lock;
    if (communicator.state != ncclInProgress) return communicator.state;
    if (communicator.world->joined < communicator.world->ranks) return ncclInProgress;
    if (--communicator.polls_left > 0) return ncclInProgress;
    batches.swap(communicator.deferred);
    if (communicator.finalized && !quiet_now(communicator)) return ncclInProgress;
    communicator.state = ncclSuccess;
  }
  ncclResult_t result = ncclSuccess;
  for (const Batch& batch : batches) result = std::max(result, launch(batch));
  if (result == ncclSuccess) return result;
  Lock lock;
  return communicator.state = result;
}

ncclResult_t finalize(ncclComm_t handle) {
  ncclComm* communicator = nullptr;
  {
    Lock lock;
    communicator = find_communicator("ncclCommFinalize", handle);
    if (!communicator) return ncclInvalidArgument;
    if (communicator->finalized || communicator->state == ncclInProgress) {
      report("ncclCommFinalize: called twice, or while the communicator is in progress");
      return ncclInvalidUsage;
    }
    communicator->finalized = true;
    if (!communicator->blocking) {
      communicator->state = ncclInProgress;
      communicator->polls_left = 1;
      return ncclInProgress;
    }
  }
  wait_until_quiet(*communicator);
  return ncclSuccess;
}

ncclResult_t destroy(ncclComm_t handle) {
  ncclComm* communicator = nullptr;
  {
    Lock lock;
    communicator = find_communicator("ncclCommDestroy", handle);
    if (!communicator) return ncclInvalidArgument;
    if (communicator->state == ncclInProgress) {
      report("ncclCommDestroy: the communicator is still in progress: ask ncclCommGetAsyncError first");
      return ncclInvalidUsage;
    }
  }
  wait_until_quiet(*communicator);
  Lock lock;
  end_object("ncclCommDestroy", "comm", handle, Kind::communicator);
  communicator->world->members[static_cast<size_t>(communicator->rank)] = nullptr;
  return ncclSuccess;
}

ncclResult_t abort(ncclComm_t handle) {
  Lock lock;
  ncclComm* communicator = find_communicator("ncclCommAbort", handle);
  if (!communicator) return ncclInvalidArgument;
  communicator->aborted = true;
  communicator->world->aborted = true;
  communicator->deferred.clear();
  communicator->world->members[static_cast<size_t>(communicator->rank)] = nullptr;
  end_object("ncclCommAbort", "comm", handle, Kind::communicator);
  nccl_progress().notify_all();
  return ncclSuccess;
}

}  // namespace

ncclResult_t refuse_nccl(const char* call, ncclResult_t result, const std::string& why) {
  thread_message = std::string(call) + ": " + why;
  report_unlocked(thread_message);
  return result;
}

void forget_ids() { worlds().clear(); }

ncclComm* find_communicator(const char* call, ncclComm_t handle) {
  const Object* object = find_object(call, "comm", handle, Kind::communicator);
  return object ? static_cast<ncclComm*>(object->body.get()) : nullptr;
}

int device_of(ncclComm_t handle) {
  ensure_ready();
  Lock lock;
  const auto found = state().objects.find(handle);
  return found != state().objects.end() ? found->second.device : -1;
}

}  // namespace gpipe::emulated

using namespace gpipe::emulated;

ncclResult_t ncclGetVersion(int* version) {
  enter("ncclGetVersion", -1);
  if (!version) return ncclInvalidArgument;
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  enter("ncclGetErrorString", -1);
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError: return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError: return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument: return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage: return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
    default: return "unknown result code";
  }
}

const char* ncclGetLastError(ncclComm_t) {
  enter("ncclGetLastError", -1);
  return thread_message.c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const Entry entry = enter("ncclGetUniqueId", -1);
  if (entry.injected) return static_cast<ncclResult_t>(entry.code);
  if (!id) return ncclInvalidArgument;
  Lock lock;
  IdContent content;
  std::memcpy(content.magic, kMagic, sizeof kMagic);
  content.number = state().handles++;
  worlds()[content.number] = std::make_shared<World>();
  std::memset(id->internal, 0, sizeof id->internal);
  std::memcpy(id->internal, &content, sizeof content);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  const Entry entry = enter("ncclCommInitRankConfig", current_device());
  if (entry.injected) return static_cast<ncclResult_t>(entry.code);
  if (entry.device_error != cudaSuccess) return ncclUnhandledCudaError;
  return init_rank(comm, ranks, id, rank, config);
}

ncclResult_t ncclCommInitAll(ncclComm_t* comms, int count, const int* devices) {
  const Entry entry = enter("ncclCommInitAll", -1);
  if (entry.injected) return static_cast<ncclResult_t>(entry.code);
  return init_all(comms, count, devices);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  const Entry entry = enter("ncclCommGetAsyncError", -1);
  if (entry.injected) return static_cast<ncclResult_t>(entry.code);
  ncclComm* communicator = nullptr;
  {
    Lock lock;
    communicator = find_communicator("ncclCommGetAsyncError", comm);
  }
  if (!communicator || !error) return ncclInvalidArgument;
  *error = device_error(communicator->device) != cudaSuccess ? ncclUnhandledCudaError : poll(*communicator);
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const Entry entry = enter("ncclCommFinalize", -1);
  return entry.injected ? static_cast<ncclResult_t>(entry.code) : finalize(comm);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const Entry entry = enter("ncclCommDestroy", -1);
  return entry.injected ? static_cast<ncclResult_t>(entry.code) : destroy(comm);
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const Entry entry = enter("ncclCommAbort", -1);
  return entry.injected ? static_cast<ncclResult_t>(entry.code) : gpipe::emulated::abort(comm);
}
