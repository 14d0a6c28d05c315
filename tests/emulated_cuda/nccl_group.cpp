// NCCL: operations and groups. What is in a group runs together: no order of its operations can deadlock.
#include "tests/emulated_cuda/memory.h"
#include "tests/emulated_cuda/nccl_types.h"
#include "tests/emulated_cuda/stream.h"

#include <algorithm>

namespace gpipe::emulated {

namespace {

struct Group {
  int depth = 0;
  ncclResult_t error = ncclSuccess;
  std::vector<std::function<ncclResult_t()>> work;
  std::vector<Batch> batches;
};
thread_local Group group;

/// Puts batches on their streams, or keeps those of communicators that do not block until they are asked.
ncclResult_t issue(const std::vector<Batch>& batches) {
  ncclResult_t result = ncclSuccess;
  for (const Batch& batch : batches) {
    if (batch.communicator->blocking) {
      const ncclResult_t launched = launch(batch);
      if (launched != ncclSuccess) return launched;
      continue;
    }
    Lock lock;
    batch.communicator->deferred.push_back(batch);
    batch.communicator->state = ncclInProgress;
    batch.communicator->polls_left = 2;
    result = ncclInProgress;
  }
  return result;
}

/// With Lock: "" or why the operation cannot be.
std::string fault_of(const char* call, const Operation& o, ncclComm& communicator, cudaStream_t stream) {
  if (communicator.finalized) return "the communicator is finalized";
  if (communicator.state == ncclInProgress) return "the communicator is in progress: ask ncclCommGetAsyncError first";
  if (o.peer < 0 || o.peer >= communicator.world->ranks) return "there is no rank " + std::to_string(o.peer);
  if (bytes_of(o.type) == 0) return "the type is unknown or not emulated";
  const bool small = o.type == ncclInt8 || o.type == ncclUint8;
  if (o.verb == Verb::all_reduce && (small || o.reduction > ncclAvg)) return "the operation or type is not emulated";
  const CUstream_st* on = find_stream(call, stream);
  if (!on) return "the stream is not usable";
  if (on->device != communicator.device) {
    return "the communicator is of device " + std::to_string(communicator.device) + ", the stream of device " +
           std::to_string(on->device);
  }
  const size_t bytes = o.count * bytes_of(o.type);
  std::vector<Range> ranges;
  if (o.from) ranges.push_back({"sendbuff", o.from, bytes, bytes_of(o.type)});
  if (o.to) ranges.push_back({"recvbuff", o.to, bytes, bytes_of(o.type)});
  if (bytes != 0 && ((o.verb != Verb::receive && !o.from) || (o.verb != Verb::send && !o.to))) return "a buffer is null";
  const auto* from = static_cast<const std::byte*>(o.from);
  const auto* to = static_cast<const std::byte*>(o.to);
  if (o.verb == Verb::all_reduce && from != to && from < to + bytes && to < from + bytes)
    return "the buffers overlap, but are not the same";
  for (const Range& range : ranges) {
    if (const std::string fault = fault_of(range, communicator.device); !fault.empty()) return range.argument + (" " + fault);
  }
  return "";
}

ncclResult_t failed(ncclResult_t result) {
  if (group.depth > 0 && group.error == ncclSuccess) group.error = result;
  return result;
}

ncclResult_t add(const char* call, ncclComm_t handle, OperationPtr operation, cudaStream_t stream) {
  const Entry entry = enter(call, device_of(handle));
  if (entry.injected) return failed(static_cast<ncclResult_t>(entry.code));
  if (entry.device_error != cudaSuccess) return failed(ncclUnhandledCudaError);
  ncclComm* communicator = nullptr;
  std::string fault;
  {
    Lock lock;
    communicator = find_communicator(call, handle);
    if (!communicator) return failed(ncclInvalidArgument);
    operation->rank = communicator->rank;
    fault = fault_of(call, *operation, *communicator, stream);
  }
  if (!fault.empty()) return failed(refuse_nccl(call, ncclInvalidArgument, fault));
  if (group.depth == 0) return issue({{communicator, stream, {std::move(operation)}}});
  for (Batch& batch : group.batches) {
    if (batch.communicator != communicator) continue;
    if (batch.stream != stream)
      return failed(refuse_nccl(call, ncclInvalidUsage, "two streams for one communicator in a group are not emulated"));
    batch.operations.push_back(std::move(operation));
    return ncclSuccess;
  }
  group.batches.push_back({communicator, stream, {std::move(operation)}});
  return ncclSuccess;
}

ncclResult_t end_group() {
  if (group.depth == 0) return refuse_nccl("ncclGroupEnd", ncclInvalidUsage, "there is no ncclGroupStart");
  if (--group.depth > 0) return ncclSuccess;
  const Group ended = std::exchange(group, Group{});
  if (ended.error != ncclSuccess) return ended.error;
  ncclResult_t result = ncclSuccess;
  for (const auto& work : ended.work) result = std::max(result, work());
  return result == ncclSuccess ? issue(ended.batches) : result;
}

OperationPtr make(Verb verb, const void* from, void* to, size_t count, ncclDataType_t type, int peer) {
  auto operation = std::make_shared<Operation>();
  operation->verb = verb;
  operation->from = from;
  operation->to = to;
  operation->count = count;
  operation->type = type;
  operation->peer = peer;
  return operation;
}

}  // namespace

size_t bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8: return 1;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32: return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64: return 8;
    default: return 0;
  }
}

const char* name_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8: return "int8";
    case ncclUint8: return "uint8";
    case ncclFloat16: return "f16";
    case ncclBfloat16: return "bf16";
    case ncclInt32: return "int32";
    case ncclUint32: return "uint32";
    case ncclFloat32: return "f32";
    case ncclInt64: return "int64";
    case ncclUint64: return "uint64";
    case ncclFloat64: return "f64";
    default: return "of unknown type";
  }
}

bool in_group() { return group.depth > 0; }
void at_group_end(std::function<ncclResult_t()> work) { group.work.push_back(std::move(work)); }

ncclResult_t launch(const Batch& batch) {
  ncclComm& communicator = *batch.communicator;
  uint64_t ticket = 0;
  std::vector<const void*> touched;
  {
    Lock lock;
    World& world = *communicator.world;
    ticket = communicator.tickets++;
    for (const OperationPtr& o : batch.operations) {
      if (o->verb == Verb::send) o->number = world.sends_issued[{o->rank, o->peer}]++;
      if (o->verb == Verb::receive) o->number = world.receives_issued[{o->peer, o->rank}]++;
      if (o->verb == Verb::all_reduce) o->number = communicator.collectives_issued++;
      touched.insert(touched.end(), {o->from, o->to});
    }
  }
  auto task = make_task("NCCL operations of rank " + std::to_string(communicator.rank),
                        [&communicator, operations = batch.operations, ticket] { run_batch(communicator, operations, ticket); });
  Lock lock;
  CUstream_st* stream = find_stream("ncclGroupEnd", batch.stream);
  if (!stream) return ncclInvalidArgument;
  push(*stream, std::move(task), touched);
  return ncclSuccess;
}

}  // namespace gpipe::emulated

using namespace gpipe::emulated;

ncclResult_t ncclGroupStart() {
  enter("ncclGroupStart", -1);
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  const Entry entry = enter("ncclGroupEnd", -1);
  if (!entry.injected) return end_group();
  group = Group{};
  return static_cast<ncclResult_t>(entry.code);
}

ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return add("ncclSend", comm, make(Verb::send, from, nullptr, count, type, peer), stream);
}

ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return add("ncclRecv", comm, make(Verb::receive, nullptr, to, count, type, peer), stream);
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t reduction, ncclComm_t comm,
                           cudaStream_t stream) {
  auto operation = make(Verb::all_reduce, from, to, count, type, 0);
  operation->reduction = reduction;
  return add("ncclAllReduce", comm, std::move(operation), stream);
}
