// Dropout: the mask is a pure function of (seed, step, node, sample, element, channel or nothing), drawn again in backward.
#include "core/base/rng.h"
#include "core/device/cpu/draw.h"
#include "core/device/cpu/ops.h"
#include "core/device/cpu/skeletons.h"

namespace gpipe::device::cpu {
namespace {

class CpuDropout final : public DropoutOp {
 public:
  CpuDropout(const DropoutSpec& spec, const Team& team) : spec_(spec), team_(team) {}

  void apply(const TensorView& x, const TensorView& y, const DropoutKey& key) override {
    const int64_t rows = x.shape[0], width = x.elements() / rows, channels = x.shape.back();
    const Odds odds{static_cast<float>(key.p), static_cast<float>(1.0 / (1.0 - key.p))};
    const float* in = x.f32();
    float* out = y.f32();
    each_row(team_.threads, rows, width, [=, this](int64_t row) {
      const uint64_t stream = static_cast<uint64_t>(key.node) << 32 | static_cast<uint32_t>(key.first_sample + row);
      const base::Philox philox(key.seed, base::Purpose::dropout, static_cast<uint64_t>(key.step), stream);
      const float* from = in + row * width;
      float* to = out + row * width;
      switch (spec_.grain) {
        case DropoutSpec::Grain::element: each_element_of(philox, odds, from, to, width, width); return;
        case DropoutSpec::Grain::channel: each_element_of(philox, odds, from, to, width, channels); return;
        case DropoutSpec::Grain::sample: whole_sample(philox.uniform(0) >= odds.p, odds.scale, from, to, width); return;
      }
    });
  }

 private:
  struct Odds {
    float p, scale;
  };

  // Element i of the row follows draw i % period; 64 draws serve all positions before the next ones are made.
  static void each_element_of(const base::Philox& philox, Odds odds, const float* in, float* out, int64_t width, int64_t period) {
    std::array<uint32_t, draw_step> words;
    for (int64_t begin = 0; begin < period; begin += draw_step) {
      const int64_t count = std::min(draw_step, period - begin);
      draw(philox, static_cast<uint64_t>(begin / 4), words);
      for (int64_t at = begin; at < width; at += period) {
#pragma GCC ivdep
        for (int64_t j = 0; j < count; ++j) {
          const bool keep = base::Philox::to_unit(words[static_cast<size_t>(j)]) >= odds.p;
          out[at + j] = keep ? in[at + j] * odds.scale : 0.0F;
        }
      }
    }
  }

  static void whole_sample(bool keep, float scale, const float* in, float* out, int64_t width) {
    if (!keep) {
      std::fill(out, out + width, 0.0F);
      return;
    }
#pragma GCC ivdep
    for (int64_t i = 0; i < width; ++i) out[i] = in[i] * scale;
  }

  DropoutSpec spec_;
  const Team& team_;
};

}  // namespace

std::unique_ptr<DropoutOp> make_dropout(const DropoutSpec& spec, const Team& team) {
  return std::make_unique<CpuDropout>(spec, team);
}

}  // namespace gpipe::device::cpu
