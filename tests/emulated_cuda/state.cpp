#include "tests/emulated_cuda/state.h"

#include "tests/emulated_cuda/launch.h"
#include "tests/emulated_cuda/memory.h"
#include "tests/emulated_cuda/nccl_world.h"
#include "tests/emulated_cuda/stream.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace gpipe::emulated {

namespace {

thread_local int thread_device = 0;
thread_local cudaError_t thread_error = cudaSuccess;

/// Ends a process that leaves violations unread: no test passes by accident.
struct AtExit {
  ~AtExit() {
    std::vector<std::string> unread;
    {
      Lock lock;
      unread.swap(state().violations);
    }
    if (unread.empty()) return;
    for (const std::string& sentence : unread) std::fprintf(stderr, "emulated CUDA: %s\n", sentence.c_str());
    std::fprintf(stderr, "emulated CUDA: %zu violations that no test read\n", unread.size());
    std::abort();
  }
};
const AtExit at_exit;

/// "devices=4,memory_mib=512,seed=7,delay_us=0,peers=0,protect=1,fail=NAME:N:CODE[:DEVICE]"; for `fail` also sticky,
/// asynchronous, lost
Options from_environment(std::vector<PlannedFailure>& failures) {
  Options options;
  const char* text = std::getenv("GPIPE_EMULATED_CUDA");
  std::string rest = text ? text : "";
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    const std::string item = rest.substr(0, comma);
    rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
    const size_t equals = item.find('=');
    const std::string key = item.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : item.substr(equals + 1);
    const long long number = std::atoll(value.c_str());
    if (key == "devices") {
      options.devices = static_cast<int>(number);
    } else if (key == "memory_mib") {
      options.memory_bytes = static_cast<size_t>(number) << 20;
    } else if (key == "seed") {
      options.seed = static_cast<uint64_t>(number);
    } else if (key == "delay_us") {
      options.delay_us = static_cast<int>(number);
    } else if (key == "peers") {
      options.peers = number != 0;
    } else if (key == "protect") {
      options.protect = number != 0;
    } else if (key == "fail" || key == "sticky" || key == "asynchronous" || key == "lost") {
      char name[128] = "";
      long long n = 1;
      PlannedFailure planned;
      if (std::sscanf(value.c_str(), "%127[^:]:%lld:%d:%d", name, &n, &planned.code, &planned.device) >= 3) {
        planned.function = name;
        planned.left = n;
        planned.failure = key == "sticky"         ? Failure::sticky
                          : key == "asynchronous" ? Failure::asynchronous
                          : key == "lost"         ? Failure::lost
                                                  : Failure::once;
        failures.push_back(planned);
      }
    } else {
      std::fprintf(stderr, "emulated CUDA: GPIPE_EMULATED_CUDA has no key '%s'\n", key.c_str());
      std::abort();
    }
  }
  return options;
}

void set_up(const Options& options) {
  Lock lock;
  State& s = state();
  s.options = options;
  if (std::getenv("GPIPE_EMULATED_CUDA_PROTECT")) s.options.protect = true;
  s.devices.assign(static_cast<size_t>(options.devices), Device{});
  s.objects.clear();
  s.failures.clear();
  s.handles = 0;
  s.host_waits = 0;
  s.ready = true;
}

}  // namespace

std::mutex& state_mutex() {
  static std::mutex& mutex = *new std::mutex;  // never destroyed: streams may outlive main
  return mutex;
}

State& state() {
  static State& s = *new State;
  return s;
}

void ensure_ready() {
  {
    Lock lock;
    if (state().ready) return;
  }
  std::vector<PlannedFailure> failures;
  const Options options = from_environment(failures);
  install_fault_handler();
  set_up(options);
  Lock lock;
  state().failures = std::move(failures);
}

void reset(const Options& options) {
  install_fault_handler();
  abort_all_communicators();
  stop_all_streams();
  {
    Lock lock;
    check_all_slack();
    release_all_memory();
  }
  set_up(options);
  thread_device = 0;
  thread_error = cudaSuccess;
}

void report(const std::string& sentence) {
  const char* task = running_task();
  std::string whole = sentence;
  if (*task) whole += std::string(" (while a stream ran ") + task + ")";
  state().violations.push_back(std::move(whole));
}

void report_unlocked(const std::string& sentence) {
  Lock lock;
  report(sentence);
}

std::vector<std::string> violations() {
  Lock lock;
  check_all_slack();
  return std::exchange(state().violations, {});
}

std::vector<std::string> leaks() {
  Lock lock;
  std::vector<std::string> found;
  for (const auto& [base, allocation] : state().allocations) {
    if (allocation.freed) continue;
    const std::string of = allocation.device < 0 ? "pinned memory" : "memory of device " + std::to_string(allocation.device);
    found.push_back(std::to_string(allocation.bytes) + " bytes of " + of + " at " + shown(base));
  }
  for (const auto& [handle, object] : state().objects) {
    if (object.alive) {
      found.push_back(std::string(kind_name(object.kind)) + " " + std::to_string(object.number) + " of device " +
                      std::to_string(object.device));
    }
  }
  return found;
}

int64_t host_waits() {
  Lock lock;
  return state().host_waits;
}

size_t used_bytes(int device) {
  Lock lock;
  return state().devices.at(static_cast<size_t>(device)).used;
}

std::string shown(const void* pointer) {
  char text[32];
  std::snprintf(text, sizeof text, "%p", pointer);
  return text;
}

int current_device() { return thread_device; }
void set_current_device(int device) { thread_device = device; }
cudaError_t last_error() { return thread_error; }
void clear_last_error() { thread_error = cudaSuccess; }

cudaError_t set_last_error(cudaError_t error) {
  if (error != cudaSuccess) thread_error = error;
  return error;
}

const char* kind_name(Kind kind) {
  switch (kind) {
    case Kind::stream: return "stream";
    case Kind::event: return "event";
    case Kind::cublas: return "cuBLAS handle";
    case Kind::cublas_lt: return "cuBLASLt handle";
    case Kind::matmul: return "matmul descriptor";
    case Kind::layout: return "matrix layout";
    case Kind::preference: return "matmul preference";
    case Kind::cudnn: return "cuDNN handle";
    case Kind::tensor: return "tensor descriptor";
    case Kind::filter: return "filter descriptor";
    case Kind::convolution: return "convolution descriptor";
    case Kind::communicator: return "communicator";
  }
  return "object";
}

void add_object(const void* handle, Kind kind, int device, std::shared_ptr<void> body) {
  state().objects[handle] = Object{kind, true, device, state().handles++, std::move(body)};
}

Object* find_object(const char* call, const char* argument, const void* handle, Kind kind) {
  const std::string start = std::string(call) + ": " + argument + " ";
  if (!handle) {
    report(start + "is null");
    return nullptr;
  }
  const auto found = state().objects.find(handle);
  if (found == state().objects.end()) {
    report(start + shown(handle) + " was never given out as a " + kind_name(kind));
    return nullptr;
  }
  Object& object = found->second;
  if (object.kind != kind) {
    report(start + "is a " + kind_name(object.kind) + ", not a " + kind_name(kind));
    return nullptr;
  }
  if (!object.alive) {
    report(start + "is " + kind_name(kind) + " " + std::to_string(object.number) + ", which was destroyed");
    return nullptr;
  }
  return &object;
}

bool end_object(const char* call, const char* argument, const void* handle, Kind kind) {
  Object* object = find_object(call, argument, handle, kind);
  if (!object) return false;
  object->alive = false;
  return true;
}

uint64_t mix(uint64_t seed, uint64_t a, uint64_t b) {
  uint64_t z = seed + 0x9E3779B97F4A7C15u * (a + 1) + 0xD1B54A32D192ED03u * (b + 1);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

double uniform(uint64_t seed, uint64_t a, uint64_t b) { return static_cast<double>(mix(seed, a, b) >> 11) * 0x1p-53; }

}  // namespace gpipe::emulated
