#include "core/tensor/tensor.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace gpipe::tensor {

const char* name_of(DType type) { return type == DType::f32 ? "f32" : "i32"; }

Shape::Shape(std::span<const int64_t> extents) : rank_(static_cast<int>(extents.size())) {
  GP_CHECK(extents.size() <= static_cast<size_t>(max_rank));
  std::copy(extents.begin(), extents.end(), extents_.begin());
}

int64_t Shape::elements() const {
  constexpr int64_t most = int64_t{1} << 48;  // far above any memory, far below an overflow of what is worked out from it
  int64_t product = 1;
  for (int64_t extent : extents())
    if (__builtin_mul_overflow(product, extent, &product) || product > most)
      throw base::ConfigError("a tensor of shape {} is too large: more than 2^48 elements", text());
  return product;
}

Shape Shape::with_batch(int64_t samples) const {
  std::array<int64_t, max_rank> all{samples};
  GP_CHECK(rank_ < max_rank);
  std::copy_n(extents_.begin(), rank_, all.begin() + 1);
  return Shape(std::span<const int64_t>(all.data(), static_cast<size_t>(rank_ + 1)));
}

Shape Shape::sample() const {
  GP_CHECK(rank_ > 0);
  return Shape(extents().subspan(1));
}

std::string Shape::text() const { return fmt::format("[{}]", fmt::join(extents(), ", ")); }

}  // namespace gpipe::tensor
