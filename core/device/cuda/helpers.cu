#include "core/device/cuda/helpers.h"
#include "core/device/cuda/skeletons.h"

namespace gpipe::device::cuda {

void add_bias(const Queue& queue, const float* bias, int64_t rows, int64_t channels, float* y) {
  each(queue, "bias", rows * channels, [=] GPIPE_KERNEL(int64_t i) { y[i] += bias[i % channels]; });
}

void add_part(const Queue& queue, const float* part, int64_t count, float* sum) {
  each(queue, "gradient sum", count, [=] GPIPE_KERNEL(int64_t i) { sum[i] += part[i]; });
}

void sum_columns(const Queue& queue, const float* a, int64_t rows, int64_t columns, float* out, bool accumulate,
                 std::byte* workspace) {
  cuda::columns<double>(
      queue, "bias gradient", rows, columns, workspace,
      [=] GPIPE_KERNEL(int64_t r, int64_t c) { return static_cast<double>(a[r * columns + c]); },
      [=] GPIPE_KERNEL(int64_t c, double sum) {
        out[c] = accumulate ? out[c] + static_cast<float>(sum) : static_cast<float>(sum);
      });
}

size_t sum_columns_bytes(int64_t rows, int64_t columns) { return columns_bytes<double>(rows, columns); }

}  // namespace gpipe::device::cuda
