#include "core/device/transposed_convolution.h"

#include "core/device/cpu/columns.h"
#include "core/device/cpu/ops.h"

namespace gpipe::device::cpu {
namespace {

class CpuTransposedConvolution final : public TransposedConvolution {
 public:
  CpuTransposedConvolution(const TransposedConvolutionSpec& spec, const Batches& batches, const Team& team)
      : TransposedConvolution(spec, make_convolution(inner_spec(spec), batches, team)), team_(team) {}

 protected:
  void add_bias(const float* bias, int64_t rows, int64_t channels, float* y) override {
    each_row(team_.threads, rows, channels, [=](int64_t row) {
#pragma GCC ivdep
      for (int64_t c = 0; c < channels; ++c) y[row * channels + c] += bias[c];
    });
  }
  void sum_rows(const float* dy, int64_t rows, int64_t channels, float* sums, bool accumulate, std::byte*) override {
    sum_columns(team_.threads, dy, rows, channels, sums, accumulate);
  }

 private:
  const Team& team_;
};

}  // namespace

std::unique_ptr<WeightedOp> make_transposed_convolution(const TransposedConvolutionSpec& spec, const Batches& batches,
                                                        const Team& team) {
  return std::make_unique<CpuTransposedConvolution>(spec, batches, team);
}

}  // namespace gpipe::device::cpu
