// Planned failures, and what every call does first.
#include "tests/emulated_cuda/calls.h"
#include "tests/emulated_cuda/state.h"

#include <algorithm>

namespace gpipe::emulated {

namespace {

thread_local cudaError_t planted = cudaSuccess;

/// Applies what is planned for this call. With Lock.
bool apply_failures(const std::string& function, int device, Entry& entry) {
  for (PlannedFailure& planned : state().failures) {
    if (planned.left <= 0 || planned.function != function || (planned.device >= 0 && planned.device != device)) continue;
    if (--planned.left > 0) continue;
    switch (planned.failure) {
      case Failure::once:
        entry.injected = true;
        entry.code = planned.code;
        return true;
      case Failure::sticky:
      case Failure::lost: break_device(device, static_cast<cudaError_t>(planned.code), planned.failure == Failure::lost); break;
      case Failure::asynchronous: planted = static_cast<cudaError_t>(planned.code); break;
    }
  }
  return false;
}

Entry look_up(const std::string& function, int device) {
  Entry entry;
  if (apply_failures(function, device, entry)) return entry;
  const auto& devices = state().devices;
  if (device < 0) return entry;
  const bool exists = static_cast<size_t>(device) < devices.size();
  entry.device_error = exists            ? devices[static_cast<size_t>(device)].sticky
                       : devices.empty() ? cudaErrorNoDevice
                                         : cudaErrorInvalidDevice;
  return entry;
}

}  // namespace

Entry enter(const char* function, int device) {
  ensure_ready();
  Lock lock;
  planted = cudaSuccess;
  ++state().calls[function];
  return look_up(function, device);
}

Entry enter_alias(const std::string& function, int device) {
  Lock lock;
  return look_up(function, device);
}

cudaError_t take_asynchronous_failure() {
  const cudaError_t taken = planted;
  planted = cudaSuccess;
  return taken;
}

void break_device(int device, cudaError_t error, bool lost) {
  if (device < 0 || static_cast<size_t>(device) >= state().devices.size()) return;
  Device& broken = state().devices[static_cast<size_t>(device)];
  if (broken.sticky == cudaSuccess) broken.sticky = error;
  broken.lost = broken.lost || lost;
}

cudaError_t device_error(int device) {
  Lock lock;
  const auto& devices = state().devices;
  return device >= 0 && static_cast<size_t>(device) < devices.size() ? devices[static_cast<size_t>(device)].sticky : cudaSuccess;
}

void fail_at(const std::string& function, int64_t n, int code, int device, Failure failure) {
  ensure_ready();
  Lock lock;
  state().failures.push_back({function, n, code, device, failure});
}

void clear_failures() {
  Lock lock;
  state().failures.clear();
}

std::map<std::string, int64_t> coverage() {
  Lock lock;
  std::map<std::string, int64_t> counts = state().calls;
  for (const char* name : kCalls) counts.emplace(name, 0);
  return counts;
}

}  // namespace gpipe::emulated
