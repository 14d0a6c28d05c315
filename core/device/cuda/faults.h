// Integers from the data that index something: a kernel looks for the first one out of range and notes it, part by part;
// synchronize() throws the first of all. Whatever uses the integers leaves bad ones out, so that nothing reads or writes beyond
// its memory until then.
#pragma once

#include "core/device/cuda/skeletons.h"
#include "core/device/ops.h"

namespace gpipe::device::cuda {

/// `length`: integers a sample. Targets may be k_ignored_target.
inline void find_fault(const Queue& queue, Fault::Kind kind, const int32_t* ids, int64_t count, int64_t length, int64_t limit) {
  Fault* faults = queue.faults;
  const int64_t check = queue.checks++, width = std::max<int64_t>((count + Queue::most_faults - 1) / Queue::most_faults, 1024);
  rows(queue, "check of ids", (count + width - 1) / width, width, [=] GPIPE_KERNEL(auto& team, int64_t part) {
    const int32_t ignored = kind == Fault::Kind::target ? k_ignored_target : 0;  // 0 is within every range
    const int64_t begin = part * width, end = begin + width < count ? begin + width : count;
    const int64_t place = team.reduce(
        end - begin, end,
        [&](int64_t i) {
          const int32_t id = ids[begin + i];
          return id == ignored || (id >= 0 && id < limit) ? end : begin + i;
        },
        [](int64_t a, int64_t b) { return a < b ? a : b; });
    team.once([&] {
      Fault& fault = faults[part];
      if (place < end && fault.kind == Fault::Kind::none) fault = {kind, ids[place], check, place, length, limit};
    });
  });
}

}  // namespace gpipe::device::cuda
