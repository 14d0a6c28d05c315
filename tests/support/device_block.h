// A tensor in a backend's memory, for tests of single ops.
#pragma once

#include "core/device/backend.h"

#include <cstring>
#include <memory>
#include <vector>

namespace gpipe::test {

class DeviceBlock {
 public:
  DeviceBlock(device::Backend& backend, const tensor::Shape& shape, const std::vector<float>& values = {})
      : memory_(backend.allocate(static_cast<size_t>(shape.elements()) * 4)), view_{memory_->data(), shape, tensor::DType::f32} {
    if (!values.empty()) std::memcpy(view_.data, values.data(), view_.bytes());
  }
  const tensor::TensorView& view() const { return view_; }
  operator const tensor::TensorView&() const { return view_; }
  std::vector<float> values() const { return {view_.f32(), view_.f32() + view_.elements()}; }
  float operator[](int64_t i) const { return view_.f32()[i]; }

 private:
  std::unique_ptr<device::Memory> memory_;
  tensor::TensorView view_;
};

inline std::unique_ptr<device::Backend> cpu(int threads = 1) {
  std::unique_ptr<device::Backend> backend = device::open_backend("cpu", {threads, {}});
  backend->attach_thread();
  return backend;
}

/// count numbers in [-1, 1), a pure function of the seed.
std::vector<float> noise(uint64_t seed, int64_t count);

}  // namespace gpipe::test
