// The thread team of one stage: what every op of the CPU leaf is made with. Owned by the backend, which outlives its ops.
#pragma once

#include "core/device/cpu/onednn.h"
#include "core/device/precision.h"

#include <omp.h>
#include <vector>

namespace gpipe::device::cpu {

struct Team {
  int threads = 1;
  std::vector<int> cores;
  dnnl::engine engine;
  dnnl::stream stream;
  Precision precision = Precision::f32;  // what the factors of products are rounded to; sums are f32

  /// What the kernels of products read. oneDNN has kernels for bf16, and none here for tf32 and f16: their numbers are among
  /// those of f32, whose kernels multiply two of them exactly.
  Type factors() const { return precision == Precision::bf16 ? Type::bf16 : Type::f32; }
  bool rounds_values() const { return precision == Precision::tf32 || precision == Precision::f16; }
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
