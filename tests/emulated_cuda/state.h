// The state of the emulated machine. Everything here is read and written under Lock, except where said.
#pragma once

#include "tests/emulated_cuda/emulated.h"
#include "tests/emulated_cuda/quiet.h"

#include <condition_variable>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

namespace gpipe::emulated {

struct Device {
  size_t used = 0;
  cudaError_t sticky = cudaSuccess;  // what every call on it returns once it is broken
  bool lost = false;
  std::set<int> peers;  // devices whose memory it may touch
};

/// A task that used an allocation, and of which stream.
struct Use {
  uint64_t ticket = 0;
  std::string what;
};

struct Allocation {
  std::byte* base = nullptr;
  size_t bytes = 0;
  int device = -1;  // -1: pinned memory of the host
  bool freed = false;
  void* mapping = nullptr;
  size_t mapped = 0;
  std::map<CUstream_st*, Use> uses;  // the last of each stream
};

enum class Kind {
  stream,
  event,
  cublas,
  cublas_lt,
  matmul,
  layout,
  preference,
  cudnn,
  tensor,
  filter,
  convolution,
  communicator
};

/// A handle that was given out. They are kept after their end, so that the use of a dead one is known as such.
struct Object {
  Kind kind;
  bool alive = true;
  int device = 0;
  uint64_t number = 0;
  std::shared_ptr<void> body;  // owns it
};

struct PlannedFailure {
  std::string function;
  int64_t left = 1;
  int code = 0;
  int device = -1;
  Failure failure = Failure::once;
};

struct State {
  Options options;
  bool ready = false;
  std::vector<Device> devices;
  std::map<std::byte*, Allocation> allocations;  // by base; with freed ones
  std::deque<std::byte*> freed;                  // the oldest first: their addresses are used again only much later
  std::set<CUstream_st*> streams;                // whose threads run
  std::set<CUstream_st*> ended_streams;          // whose threads are to be joined
  std::condition_variable stream_ended;
  std::unordered_map<const void*, Object> objects;
  std::vector<std::string> violations;
  std::map<std::string, int64_t> calls;
  std::vector<PlannedFailure> failures;
  uint64_t handles = 0;  // given out so far
  int64_t host_waits = 0;
  int memory_users = 0;  // tasks that run, and looks of the emulation itself
  bool memory_closed = false;
};
State& state();

/// reset() by the environment, if nothing was set up yet. Called without Lock.
void ensure_ready();

/// Adds a violation. With Lock.
void report(const std::string& sentence);
/// The same for code that does not hold Lock.
void report_unlocked(const std::string& sentence);

/// `bytes` or a pointer as messages show it.
std::string shown(const void* pointer);

/// What the entry of a call found: go on, or the status to return.
struct Entry {
  bool injected = false;  // a planned failure: `code` is the library's own status
  int code = 0;
  cudaError_t device_error = cudaSuccess;  // the device is broken
  bool passed() const { return !injected && device_error == cudaSuccess; }
};
/// Counts the call, applies planned failures, and finds a broken device. `device` may be out of range (no device). Without Lock.
Entry enter(const char* function, int device);
/// Counts nothing: planned failures of another name for the same call (a kernel's). Without Lock.
Entry enter_alias(const std::string& function, int device);
/// The planned asynchronous failure that the calling thread's current call has to plant into its task, once. Any thread.
cudaError_t take_asynchronous_failure();

/// Breaks a device: all that is queued on it is dropped. With Lock.
void break_device(int device, cudaError_t error, bool lost = false);

/// cudaSuccess while it is whole. Without Lock.
cudaError_t device_error(int device);

int current_device();
void set_current_device(int device);
cudaError_t last_error();
void clear_last_error();
cudaError_t set_last_error(cudaError_t error);

/// A call of the runtime: entered for `device`, its status kept as the thread's last error.
template <class Body>
cudaError_t runtime_call(const char* function, int device, Body&& body) {
  const Entry entry = enter(function, device);
  if (entry.injected) return set_last_error(static_cast<cudaError_t>(entry.code));
  if (entry.device_error != cudaSuccess) return set_last_error(entry.device_error);
  return set_last_error(body());
}
template <class Body>
cudaError_t runtime_call(const char* function, Body&& body) {
  return runtime_call(function, current_device(), std::forward<Body>(body));
}

/// Registers a handle; `label` is used by leaks(). With Lock.
void add_object(const void* handle, Kind kind, int device, std::shared_ptr<void> body);
/// The object, or null after a report "CALL: ARGUMENT is not a live stream". With Lock.
Object* find_object(const char* call, const char* argument, const void* handle, Kind kind);
/// Copies what the handle stands for; false after a report.
template <class Body, class Handle>
bool read(const char* call, const char* argument, Handle handle, Kind kind, Body& out) {
  Lock lock;
  const Object* object = find_object(call, argument, handle, kind);
  if (object) out = *static_cast<const Body*>(object->body.get());
  return object != nullptr;
}
/// Marks it as ended; false after a report. With Lock.
bool end_object(const char* call, const char* argument, const void* handle, Kind kind);
const char* kind_name(Kind kind);

/// A number in [0, 2^64) that is a pure function of its arguments (splitmix64).
uint64_t mix(uint64_t seed, uint64_t a, uint64_t b = 0);
/// In [0, 1).
double uniform(uint64_t seed, uint64_t a, uint64_t b = 0);

}  // namespace gpipe::emulated
