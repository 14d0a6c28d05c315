// Small kernels that ops of the vendor libraries want beside them. `workspace` of sum_columns has sum_columns_bytes.
#pragma once

#include "core/device/cuda/queue.h"

namespace gpipe::device::cuda {

/// y[r, c] += bias[c]
void add_bias(const Queue&, const float* bias, int64_t rows, int64_t channels, float* y);
/// sum[i] += part[i]
void add_part(const Queue&, const float* part, int64_t count, float* sum);
/// out[c] (+)= sum over the rows of a[r, c], in a fixed order
void sum_columns(const Queue&, const float* a, int64_t rows, int64_t columns, float* out, bool accumulate, std::byte* workspace);
size_t sum_columns_bytes(int64_t rows, int64_t columns);

}  // namespace gpipe::device::cuda
