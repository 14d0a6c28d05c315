// Dropout: the mask is a pure function of (seed, step, node, sample, element), drawn again in backward.
#include "core/base/rng.h"
#include "core/device/cpu/ops.h"
#include "core/device/cpu/skeletons.h"

namespace gpipe::device::cpu {
namespace {

constexpr int64_t step = 64;  // numbers drawn at once: sixteen blocks of four
typedef uint32_t Words __attribute__((vector_size(64)));
typedef uint64_t Doubles __attribute__((vector_size(64)));

struct Product {
  Words high, low;
};
// 32 x 32 -> 64 bits in every lane, even and odd lanes apart.
Product multiply(const Words& a, uint32_t b) {
  const Doubles pairs = reinterpret_cast<Doubles>(a);
  const Doubles even = (pairs & 0xffffffffULL) * b, odd = (pairs >> 32) * b;
  const Doubles high = (even >> 32) | (odd & ~0xffffffffULL), low = (even & 0xffffffffULL) | (odd << 32);
  return {reinterpret_cast<Words>(high), reinterpret_cast<Words>(low)};
}

// Blocks first, first + 1, ... of a Philox stream: Random123's rounds on sixteen counters at a time, in vector registers.
void draw(const base::Philox& philox, uint64_t first, std::array<uint32_t, step>& out) {
  const auto start = philox.counter(first);
  auto key = philox.key();
  Words a = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  a += start[0];  // `first` is a multiple of sixteen: no carry into the next word
  Words b = Words{} + start[1], c = Words{} + start[2], d = Words{} + start[3];
  for (int round = 0; round < 10; ++round) {
    const Product p = multiply(a, PHILOX_M4x32_0), q = multiply(c, PHILOX_M4x32_1);
    a = q.high ^ b ^ key[0];
    b = q.low;
    c = p.high ^ d ^ key[1];
    d = p.low;
    key[0] += PHILOX_W32_0;
    key[1] += PHILOX_W32_1;
  }
  // Four vectors of a word each -> sixteen blocks of four words.
  const Words low = {0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23};
  const Words high = {8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const Doubles low_pairs = {0, 8, 1, 9, 2, 10, 3, 11}, high_pairs = {4, 12, 5, 13, 6, 14, 7, 15};
  const auto ab_low = reinterpret_cast<Doubles>(__builtin_shuffle(a, b, low));
  const auto ab_high = reinterpret_cast<Doubles>(__builtin_shuffle(a, b, high));
  const auto cd_low = reinterpret_cast<Doubles>(__builtin_shuffle(c, d, low));
  const auto cd_high = reinterpret_cast<Doubles>(__builtin_shuffle(c, d, high));
  const Doubles all[4] = {__builtin_shuffle(ab_low, cd_low, low_pairs), __builtin_shuffle(ab_low, cd_low, high_pairs),
                          __builtin_shuffle(ab_high, cd_high, low_pairs), __builtin_shuffle(ab_high, cd_high, high_pairs)};
  std::memcpy(out.data(), all, sizeof all);
}

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
    std::array<uint32_t, step> words;
    for (int64_t begin = 0; begin < width; begin += step) {
      const int64_t count = std::min(step, width - begin);
      draw(philox, static_cast<uint64_t>(begin / 4), words);
#pragma GCC ivdep
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
