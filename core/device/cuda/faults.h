// Integers from the data that index something: a kernel looks for the first one out of range and notes it, synchronize()
// throws. Whatever uses the integers leaves bad ones out, so that nothing reads or writes beyond its memory until then.
#pragma once

#include "core/device/cuda/skeletons.h"
#include "core/device/ops.h"

namespace gpipe::device::cuda {

/// `length`: integers a sample. Targets may be k_ignored_target.
inline void find_fault(const Queue& queue, Fault::Kind kind, const int32_t* ids, int64_t count, int64_t length, int64_t limit) {
  Fault* fault = queue.fault;
  rows(queue, "check of ids", 1, count, [=] GPIPE_KERNEL(auto& team, int64_t) {
    const int32_t ignored = kind == Fault::Kind::target ? k_ignored_target : 0;  // 0 is within every range
    const int64_t place = team.reduce(
        count, count, [&](int64_t i) { return ids[i] == ignored || (ids[i] >= 0 && ids[i] < limit) ? count : i; },
        [](int64_t a, int64_t b) { return a < b ? a : b; });
    team.once([&] {
      if (place < count && fault->kind == Fault::Kind::none) *fault = {kind, ids[place], place, length, limit};
    });
  });
}

}  // namespace gpipe::device::cuda
