#include "core/device/cuda/narrow.h"
#include "core/device/cuda/skeletons.h"
#include "core/device/functors/rounding.h"

namespace gpipe::device::cuda {
namespace {

template <class Format>
void narrow_to(const Queue& queue, const float* from, int64_t count, std::byte* to) {
  auto* out = reinterpret_cast<typename Format::Stored*>(to);
  each(queue, "rounding", count, [=] GPIPE_KERNEL(int64_t i) { out[i] = Format::narrow(from[i]); });
}

template <class Format>
void widen_from(const Queue& queue, const std::byte* from, int64_t count, float* to, bool accumulate) {
  const auto* in = reinterpret_cast<const typename Format::Stored*>(from);
  each(queue, "widening", count, [=] GPIPE_KERNEL(int64_t i) {
    const float x = Format::widen(in[i]);
    to[i] = accumulate ? to[i] + x : x;
  });
}

template <class Format>
void widen_from(const Queue& queue, const std::byte* from, const float* bias, int64_t rows, int64_t channels, float* to) {
  const auto* in = reinterpret_cast<const typename Format::Stored*>(from);
  each(queue, "bias", rows * channels, [=] GPIPE_KERNEL(int64_t i) { to[i] = Format::widen(in[i]) + bias[i % channels]; });
}

}  // namespace

void narrow(const Queue& queue, Precision precision, const float* from, int64_t count, std::byte* to) {
  if (precision == Precision::bf16) return narrow_to<Bf16>(queue, from, count, to);
  narrow_to<F16>(queue, from, count, to);
}

void widen(const Queue& queue, Precision precision, const std::byte* from, int64_t count, float* to, bool accumulate) {
  if (precision == Precision::bf16) return widen_from<Bf16>(queue, from, count, to, accumulate);
  widen_from<F16>(queue, from, count, to, accumulate);
}

void widen(const Queue& queue, Precision precision, const std::byte* from, const float* bias, int64_t rows, int64_t channels,
           float* to) {
  if (precision == Precision::bf16) return widen_from<Bf16>(queue, from, bias, rows, channels, to);
  widen_from<F16>(queue, from, bias, rows, channels, to);
}

}  // namespace gpipe::device::cuda
