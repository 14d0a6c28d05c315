// Numbers of 16 bits (bf16 or f16, as `precision` says) beside those of f32: factors of products, rounded into the workspace
// before a product, and cuDNN's outcomes, which are as narrow, on their way back. Pointers are to the device's memory.
#pragma once

#include "core/device/cuda/ops.h"
#include "core/device/precision.h"

namespace gpipe::device::cuda {

/// What `count` of them take in a workspace.
constexpr size_t narrow_bytes(int64_t count) { return aligned(2 * static_cast<size_t>(count)); }

/// to[i] = from[i], rounded to nearest even
void narrow(const Queue&, Precision precision, const float* from, int64_t count, std::byte* to);
/// to[i] (+)= from[i]
void widen(const Queue&, Precision precision, const std::byte* from, int64_t count, float* to, bool accumulate = false);
/// to[r, c] = from[r, c] + bias[c]
void widen(const Queue&, Precision precision, const std::byte* from, const float* bias, int64_t rows, int64_t channels,
           float* to);

}  // namespace gpipe::device::cuda
