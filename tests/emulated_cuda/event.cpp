// Events: a wait captures the latest record at the time of the call; no record, no wait.
#include "tests/emulated_cuda/stream.h"

struct CUevent_st {
  int device = 0;
  unsigned flags = 0;
  std::shared_ptr<gpipe::emulated::Record> latest;
};

namespace gpipe::emulated {

namespace {

CUevent_st* find_event(const char* call, cudaEvent_t event) {
  const Object* object = find_object(call, "event", event, Kind::event);
  return object ? static_cast<CUevent_st*>(object->body.get()) : nullptr;
}

int device_of_event(cudaEvent_t event) {
  ensure_ready();
  Lock lock;
  const auto found = state().objects.find(event);
  return found != state().objects.end() && found->second.kind == Kind::event ? found->second.device : current_device();
}

cudaError_t create(cudaEvent_t* event, unsigned flags) {
  Lock lock;
  const unsigned known = cudaEventBlockingSync | cudaEventDisableTiming;
  if (!event || (flags & ~known) != 0) {
    report("cudaEventCreateWithFlags: event is null, or the flags are not cudaEventBlockingSync and cudaEventDisableTiming");
    return cudaErrorInvalidValue;
  }
  auto body = std::make_shared<CUevent_st>();
  body->device = current_device();
  body->flags = flags;
  *event = body.get();
  add_object(body.get(), Kind::event, body->device, body);
  return cudaSuccess;
}

cudaError_t record(cudaEvent_t event, cudaStream_t stream) {
  auto made = std::make_shared<Record>();
  auto task = make_task("cudaEventRecord", {}, made);
  Lock lock;
  CUevent_st* of = find_event("cudaEventRecord", event);
  CUstream_st* on = find_stream("cudaEventRecord", stream);
  if (!of || !on) return cudaErrorInvalidResourceHandle;
  if (of->device != on->device) {
    report("cudaEventRecord: the event is of device " + std::to_string(of->device) + ", the stream of device " +
           std::to_string(on->device));
    return cudaErrorInvalidResourceHandle;
  }
  of->latest = std::move(made);
  push(*on, std::move(task));
  return cudaSuccess;
}

/// The latest record; null without one. False when there is no such event.
bool latest_of(const char* call, cudaEvent_t event, std::shared_ptr<Record>& latest) {
  Lock lock;
  const CUevent_st* of = find_event(call, event);
  if (of) latest = of->latest;
  return of != nullptr;
}

cudaError_t wait(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  std::shared_ptr<Record> latest;
  if (!latest_of("cudaStreamWaitEvent", event, latest)) return cudaErrorInvalidResourceHandle;
  auto task = make_task("cudaStreamWaitEvent", {}, {}, latest);
  Lock lock;
  CUstream_st* on = find_stream("cudaStreamWaitEvent", stream);
  if (!on) return cudaErrorInvalidResourceHandle;
  if (flags != cudaEventWaitDefault) {
    report("cudaStreamWaitEvent: flags must be cudaEventWaitDefault");
    return cudaErrorInvalidValue;
  }
  if (latest) push(*on, std::move(task));
  return cudaSuccess;
}

bool is_done(Record& record) {
  {
    Lock lock;
    if (!record.done) return false;
  }
  record.edge.acquire();
  return true;
}

cudaError_t elapsed(float* ms, cudaEvent_t start, cudaEvent_t end) {
  Lock lock;
  const CUevent_st* first = find_event("cudaEventElapsedTime", start);
  const CUevent_st* second = find_event("cudaEventElapsedTime", end);
  if (!first || !second) return cudaErrorInvalidResourceHandle;
  if (!ms) return cudaErrorInvalidValue;
  if (((first->flags | second->flags) & cudaEventDisableTiming) != 0 || !first->latest || !second->latest ||
      first->device != second->device) {
    report("cudaEventElapsedTime: an event was made without timing or was never recorded, or they are of two devices");
    return cudaErrorInvalidResourceHandle;
  }
  if (!first->latest->done || !second->latest->done) return cudaErrorNotReady;
  *ms = std::chrono::duration<float, std::milli>(second->latest->time - first->latest->time).count();
  return cudaSuccess;
}

}  // namespace

}  // namespace gpipe::emulated

using namespace gpipe::emulated;

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  return runtime_call("cudaEventCreateWithFlags", [&] { return create(event, flags); });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const Entry entry = enter("cudaEventDestroy", device_of_event(event));
  if (entry.injected) return set_last_error(static_cast<cudaError_t>(entry.code));
  Lock lock;
  if (!end_object("cudaEventDestroy", "event", event, Kind::event)) return set_last_error(cudaErrorInvalidResourceHandle);
  return set_last_error(entry.device_error);  // a broken device gives its events back too
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return runtime_call("cudaEventRecord", device_of(stream), [&] { return record(event, stream); });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  return runtime_call("cudaStreamWaitEvent", device_of(stream), [&] { return wait(stream, event, flags); });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const int device = device_of_event(event);
  return runtime_call("cudaEventSynchronize", device, [&] {
    std::shared_ptr<Record> latest;
    if (!latest_of("cudaEventSynchronize", event, latest)) return cudaErrorInvalidResourceHandle;
    if (latest) wait_on_host(*latest);
    return device_error(device);
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const int device = device_of_event(event);
  return runtime_call("cudaEventQuery", device, [&] {
    std::shared_ptr<Record> latest;
    if (!latest_of("cudaEventQuery", event, latest)) return cudaErrorInvalidResourceHandle;
    return !latest || is_done(*latest) ? device_error(device) : cudaErrorNotReady;
  });
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  return runtime_call("cudaEventElapsedTime", [&] { return elapsed(ms, start, end); });
}
