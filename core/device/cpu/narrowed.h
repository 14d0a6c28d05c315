// A factor of a product as its kernels read it: as it is, or a copy rounded to the team's precision in the workspace.
#pragma once

#include "core/device/cpu/skeletons.h"
#include "core/device/cpu/team.h"
#include "core/device/functors/rounding.h"

namespace gpipe::device::cpu {

/// bf16 is a copy of half the size; of tf32 and f16 the copy is of f32 numbers that those formats have.
class Narrowed {
 public:
  Narrowed() = default;
  /// `plain`: the factor, f32 without gaps; `wanted`: the same in the type that the kernels read, Team::factors(), in the same
  /// order.
  Narrowed(const Description& plain, const Description& wanted, const Team& team) : team_(&team) {
    if (plain == wanted && !team.rounds_values()) return;
    count_ = static_cast<int64_t>(plain.get_size() / sizeof(float));
    GP_CHECK_EQ(wanted.get_size(), static_cast<size_t>(count_) * (team.rounds_values() ? sizeof(float) : sizeof(Bf16::Stored)));
    bytes_ = bytes_of(wanted);
  }
  size_t bytes() const { return bytes_; }
  /// Writes bytes() at `to` where the factor has to be rounded.
  const std::byte* read(const std::byte* factor, std::byte* to) const {
    if (bytes_ == 0) return factor;
    const float* from = reinterpret_cast<const float*>(factor);
    switch (team_->precision) {
      case Precision::tf32: round(from, reinterpret_cast<float*>(to), [](float x) { return Tf32::nearest(x); }); break;
      case Precision::f16: round(from, reinterpret_cast<float*>(to), [](float x) { return F16::nearest(x); }); break;
      default: round(from, reinterpret_cast<Bf16::Stored*>(to), [](float x) { return Bf16::narrow(x); });
    }
    return to;
  }

 private:
  template <class To, class F>
  void round(const float* from, To* to, const F& f) const {
    each_part(team_->threads, count_, count_, [=](int64_t begin, int64_t end) {
#pragma GCC ivdep
      for (int64_t i = begin; i < end; ++i) to[i] = f(from[i]);
    });
  }

  const Team* team_ = nullptr;
  int64_t count_ = 0;
  size_t bytes_ = 0;
};

}  // namespace gpipe::device::cpu
