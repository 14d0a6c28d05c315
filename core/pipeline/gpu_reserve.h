// What a plan leaves of a GPU's memory for all that is not an arena.
#pragma once

#include <cstdint>

namespace gpipe::pipeline {

/// Bytes: of each GPU for libraries and kernels; of it for each of the pipeline's devices on it, for what libraries work in.
constexpr int64_t k_reserve_of_gpu = int64_t{512} << 20, k_reserve_of_device = int64_t{64} << 20;
/// For a device that sends to and receives from those of other processes: NCCL's buffers, of at most two ways each way.
constexpr int64_t k_reserve_of_links = int64_t{384} << 20;

}  // namespace gpipe::pipeline
