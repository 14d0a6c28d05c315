// Dropout: the mask is a pure function of (seed, step, node, sample, element), drawn again in backward.
#include "core/base/rng.h"
#include "core/device/cpu/ops.h"
#include "core/device/cpu/skeletons.h"

namespace gpipe::device::cpu {
namespace {

class CpuDropout final : public DropoutOp {
 public:
  CpuDropout(const DropoutSpec& spec, const Team& team)
      : p_(static_cast<float>(spec.p)), scale_(static_cast<float>(1.0 / (1.0 - spec.p))), team_(team) {}

  void apply(const TensorView& x, const TensorView& y, const DropoutKey& key) override {
    const int64_t rows = x.shape[0], width = x.elements() / rows;
    const float* in = x.f32();
    float* out = y.f32();
    each_row(team_.threads, rows, width, [=, this](int64_t row) {
      const uint64_t stream = static_cast<uint64_t>(key.node) << 32 | static_cast<uint32_t>(key.first_sample + row);
      const base::Philox philox(key.seed, base::Purpose::dropout, static_cast<uint64_t>(key.step), stream);
      apply_row(philox, in + row * width, out + row * width, width);
    });
  }

 private:
  void apply_row(const base::Philox& philox, const float* in, float* out, int64_t width) const {
    for (int64_t begin = 0; begin < width; begin += 4) {
      const std::array<uint32_t, 4> words = philox.block(static_cast<uint64_t>(begin / 4));
      const int64_t count = std::min<int64_t>(4, width - begin);
      for (int64_t j = 0; j < count; ++j) {
        const bool keep = base::Philox::to_unit(words[static_cast<size_t>(j)]) >= p_;
        out[begin + j] = keep ? in[begin + j] * scale_ : 0.0F;
      }
    }
  }

  float p_, scale_;
  const Team& team_;
};

}  // namespace

std::unique_ptr<DropoutOp> make_dropout(const DropoutSpec& spec, const Team& team) {
  return std::make_unique<CpuDropout>(spec, team);
}

}  // namespace gpipe::device::cpu
