#include "core/device/cpu/team.h"

#include <atomic>
#include <pthread.h>
#include <sched.h>

namespace gpipe::device::cpu {
namespace {

// 0, or the error number.
int bind_to(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(core), &set);
  return pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

}  // namespace

void attach(const Team& team) {
  omp_set_num_threads(team.threads);
  if (team.cores.empty()) return;
  std::atomic<int> failed = -1;  // a core that could not be bound to
  const auto bind = [&](int thread) {
    const int core = team.cores[static_cast<size_t>(thread) % team.cores.size()];
    if (core < 0 || core >= CPU_SETSIZE || bind_to(core) != 0) failed = core;
  };
  if (team.threads == 1) {
    bind(0);
  } else {
#pragma omp parallel num_threads(team.threads)
    bind(omp_get_thread_num());
  }
  if (failed != -1) throw base::DeviceError("cannot bind a thread to core {}: it is not there or not allowed", failed.load());
}

}  // namespace gpipe::device::cpu
