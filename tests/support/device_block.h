// A tensor in a backend's memory, for tests of single ops.
#pragma once

#include "core/device/backend.h"

#include <cstddef>
#include <memory>
#include <vector>

namespace gpipe::test {

/// Bytes into and out of a device's memory, wherever that is; both wait for the device.
void write_bytes(device::Backend& backend, const void* from, size_t bytes, std::byte* to);
void read_bytes(device::Backend& backend, const std::byte* from, size_t bytes, void* to);

class DeviceBlock {
 public:
  DeviceBlock(device::Backend& backend, const tensor::Shape& shape, const std::vector<float>& values = {})
      : backend_(backend),
        memory_(backend.allocate(static_cast<size_t>(shape.elements()) * 4)),
        view_{memory_->data(), shape, tensor::DType::f32} {
    if (!values.empty()) write_bytes(backend, values.data(), view_.bytes(), view_.data);
  }
  const tensor::TensorView& view() const { return view_; }
  operator const tensor::TensorView&() const { return view_; }
  std::vector<float> values() const {
    std::vector<float> values(static_cast<size_t>(view_.elements()));
    read_bytes(backend_, view_.data, view_.bytes(), values.data());
    return values;
  }
  float operator[](int64_t i) const {
    float value = 0;
    read_bytes(backend_, view_.data + 4 * i, 4, &value);
    return value;
  }

 private:
  device::Backend& backend_;
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
