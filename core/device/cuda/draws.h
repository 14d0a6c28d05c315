// The draws of dropout in a kernel: Random123's Philox with the key and the counters of base::Philox, which is not made for
// device code. The sample is the low half of the counter's second stream, so one start serves all samples of a micro-batch.
#pragma once

#include "core/base/rng.h"
#include "core/device/cuda/skeletons.h"
#include "core/device/ops.h"

namespace gpipe::device::cuda {

struct Draws {
  r123::Philox4x32::ctr_type start;
  r123::Philox4x32::key_type key;
  uint32_t first_sample;

  static Draws of(const DropoutKey& key) {
    const base::Philox philox(key.seed, base::Purpose::dropout, static_cast<uint64_t>(key.step),
                              static_cast<uint64_t>(key.node) << 32);
    return {philox.counter(0), philox.key(), static_cast<uint32_t>(key.first_sample)};
  }

  /// Four words: block `block` of the stream of row `row` of the micro-batch.
  GPIPE_KERNEL r123::Philox4x32::ctr_type block(int64_t row, uint64_t block) const {
    r123::Philox4x32::ctr_type counter = start;
    counter[0] = static_cast<uint32_t>(block);
    counter[1] ^= static_cast<uint32_t>(block >> 32);
    counter[2] = first_sample + static_cast<uint32_t>(row);
    return r123::Philox4x32{}(counter, key);
  }
  GPIPE_KERNEL uint32_t word(int64_t row, uint64_t element) const { return block(row, element / 4)[element % 4]; }
  /// Philox::to_unit
  GPIPE_KERNEL static float to_unit(uint32_t word) { return static_cast<float>(word >> 8) * 0x1.0p-24F; }
};

}  // namespace gpipe::device::cuda
