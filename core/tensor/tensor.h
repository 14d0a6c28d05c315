// Shape, DType and TensorView: what a block of memory means. A view owns nothing; stages own one arena each and hand
// out views into it. Dense, row-major, first axis = samples, last axis = channels.
#pragma once

#include "core/base/error.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

namespace gpipe::tensor {

enum class DType : uint8_t { f32, i32 };

constexpr size_t size_of(DType) { return 4; }
const char* name_of(DType type);

/// Up to six extents. A *sample shape* leaves out the first axis (samples): an image is [H, W, C], a vector [F].
class Shape {
 public:
  static constexpr int max_rank = 6;

  Shape() = default;
  Shape(std::initializer_list<int64_t> extents) : Shape(std::span(extents.begin(), extents.size())) {}
  explicit Shape(std::span<const int64_t> extents);

  int rank() const { return rank_; }
  int64_t operator[](int axis) const { return extents_[static_cast<size_t>(axis)]; }
  int64_t back() const { return extents_[static_cast<size_t>(rank_ - 1)]; }
  std::span<const int64_t> extents() const { return {extents_.data(), static_cast<size_t>(rank_)}; }
  int64_t elements() const;                 // 1 for rank 0
  Shape with_batch(int64_t samples) const;  // [samples, ...]
  Shape sample() const;                     // without the first axis
  std::string text() const;                 // "[32, 32, 64]"
  bool operator==(const Shape&) const = default;

 private:
  std::array<int64_t, max_rank> extents_{};
  int rank_ = 0;
};

struct TensorView {
  std::byte* data = nullptr;
  Shape shape;
  DType dtype = DType::f32;

  int64_t elements() const { return shape.elements(); }
  size_t bytes() const { return static_cast<size_t>(elements()) * size_of(dtype); }
  explicit operator bool() const { return data != nullptr; }

  float* f32() const {
    GP_CHECK(dtype == DType::f32);
    return reinterpret_cast<float*>(data);
  }
  int32_t* i32() const {
    GP_CHECK(dtype == DType::i32);
    return reinterpret_cast<int32_t*>(data);
  }
};

}  // namespace gpipe::tensor

template <>
struct fmt::formatter<gpipe::tensor::Shape> : fmt::formatter<std::string> {
  auto format(const gpipe::tensor::Shape& shape, fmt::format_context& context) const {
    return fmt::formatter<std::string>::format(shape.text(), context);
  }
};
