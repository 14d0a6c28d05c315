// A factor of a product as its kernels read it: as it is, or a copy rounded to the team's precision in the workspace.
#pragma once

#include "core/device/cpu/skeletons.h"
#include "core/device/cpu/team.h"
#include "core/device/functors/rounding.h"

namespace gpipe::device::cpu {

/// bf16 is a copy of half the size, oneDNN's; tf32 and f16 are f32 numbers that those formats have, rounded by ourselves.
class Narrowed {
 public:
  Narrowed() = default;
  /// `plain`: the factor, f32 without gaps; `wanted`: the same in the type that the kernels read, Team::factors().
  Narrowed(const Description& plain, const Description& wanted, const Team& team) : team_(&team) {
    if (team.rounds_values()) {
      count_ = static_cast<int64_t>(plain.get_size() / sizeof(float));
      scratchpad_ = bytes_ = bytes_of(plain);
    } else if (!(plain == wanted)) {
      copy_ = plan_reorder(plain, wanted, team.engine);
      scratchpad_ = bytes_of(wanted);
      bytes_ = scratchpad_ + copy_.scratchpad_bytes();
    }
  }
  size_t bytes() const { return bytes_; }
  /// Writes bytes() at `to` where the factor has to be rounded.
  const std::byte* read(const std::byte* factor, std::byte* to) {
    if (bytes_ == 0) return factor;
    if (copy_)
      copy_.run(team_->stream, {factor, to}, to + scratchpad_);
    else
      round(reinterpret_cast<const float*>(factor), reinterpret_cast<float*>(to));
    return to;
  }

 private:
  void round(const float* from, float* to) const {
    if (team_->precision == Precision::tf32)
      each_element(team_->threads, count_, from, to, [](float x) { return Tf32::nearest(x); });
    else
      each_element(team_->threads, count_, from, to, [](float x) { return F16::nearest(x); });
  }

  const Team* team_ = nullptr;
  Kernel copy_;
  int64_t count_ = 0;
  size_t bytes_ = 0, scratchpad_ = 0;
};

}  // namespace gpipe::device::cpu
