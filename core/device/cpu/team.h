// The thread team of one stage: what every op of the CPU leaf is made with. Owned by the backend, which outlives its ops.
#pragma once

#include "core/device/cpu/onednn.h"

#include <omp.h>
#include <vector>

namespace gpipe::device::cpu {

struct Team {
  int threads = 1;
  std::vector<int> cores;
  dnnl::engine engine;
  dnnl::stream stream;
  Type factors = Type::f32;  // what the factors of products are rounded to; sums are f32
};

/// Sizes the calling thread's OpenMP team and binds its threads to the cores.
void attach(const Team& team);

/// oneDNN plans for the number of threads that OpenMP would use on the planning thread, which need not be the stage's:
/// lives while an op is described.
class PlanningScope {
 public:
  explicit PlanningScope(const Team& team) : before_(omp_get_max_threads()) { omp_set_num_threads(team.threads); }
  PlanningScope(const PlanningScope&) = delete;
  PlanningScope& operator=(const PlanningScope&) = delete;
  ~PlanningScope() { omp_set_num_threads(before_); }

 private:
  int before_;
};

}  // namespace gpipe::device::cpu
