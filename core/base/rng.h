// Random numbers as pure functions of a key and a counter: Random123's Philox4x32-10, no generator state anywhere.
//
// Whoever draws names what is drawn: (seed, purpose, step or epoch, node or index, element). A recompute, a resume,
// another partition or another number of micro-batches therefore draws the same numbers. Source: Salmon et al.,
// "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <Random123/philox.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace gpipe::base {

/// What a stream of numbers is for; keeps streams of one seed apart.
enum class Purpose : uint32_t {
  initialise = 1,
  dropout = 2,
  shuffle = 3,
  augment = 4,
  synthetic = 5,
  split = 6,
  test = 7,
  sample = 8
};

class Philox {
 public:
  /// Key: the user's seed and the purpose. Counter: three numbers of the caller's (stream) and the element block.
  Philox(uint64_t seed, Purpose purpose, uint64_t stream_a = 0, uint64_t stream_b = 0)
      : key_{{static_cast<uint32_t>(seed) ^ (static_cast<uint32_t>(purpose) * 0x9E3779B9u), static_cast<uint32_t>(seed >> 32)}},
        a_(stream_a),
        b_(stream_b) {}

  /// Four independent 32-bit words: block `block` of this stream; `block` < 2^32.
  std::array<uint32_t, 4> block(uint64_t block) const {
    const auto out = r123::Philox4x32{}(counter(block), key_);
    return {out[0], out[1], out[2], out[3]};
  }

  /// What block() is a function of, for those who draw many blocks side by side.
  r123::Philox4x32::ctr_type counter(uint64_t block) const {
    return {{static_cast<uint32_t>(block), static_cast<uint32_t>(a_) ^ static_cast<uint32_t>(block >> 32),
             static_cast<uint32_t>(b_), static_cast<uint32_t>((a_ >> 32) * 0x85EBCA6Bu) ^ static_cast<uint32_t>(b_ >> 32)}};
  }
  r123::Philox4x32::key_type key() const { return key_; }

  uint32_t word(uint64_t element) const { return block(element / 4)[element % 4]; }

  /// Uniform in [0, 1), 24 bits: the same float on every device.
  static float to_unit(uint32_t word) { return static_cast<float>(word >> 8) * 0x1.0p-24f; }
  float uniform(uint64_t element) const { return to_unit(word(element)); }

  /// Uniform integer in [0, bound); bound < 2^32. Bias below bound / 2^32 (fixed-point multiplication).
  uint32_t below(uint64_t element, uint32_t bound) const {
    return static_cast<uint32_t>((static_cast<uint64_t>(word(element)) * bound) >> 32);
  }

  /// Standard normal (Box-Muller on words 2e and 2e+1).
  double normal(uint64_t element) const {
    const double u = (static_cast<double>(word(2 * element)) + 1.0) * 0x1.0p-32;
    const double v = static_cast<double>(word(2 * element + 1)) * 0x1.0p-32;
    return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
  }

 private:
  r123::Philox4x32::key_type key_;
  uint64_t a_, b_;
};

}  // namespace gpipe::base
