#include "tests/support/device_block.h"

#include "core/base/rng.h"

#include <cstring>

namespace gpipe::test {
namespace {

tensor::TensorView view_of(std::byte* data, size_t bytes) {
  const size_t rest = bytes % 4;
  GP_CHECK(rest == 0);
  return {data, {static_cast<int64_t>(bytes / 4)}, tensor::DType::f32};
}

}  // namespace

void write_bytes(device::Backend& backend, const void* from, size_t bytes, std::byte* to) {
  if (bytes == 0) return;
  if (backend.is_host()) {
    std::memcpy(to, from, bytes);
    return;
  }
  const auto pinned = backend.allocate_pinned(bytes);
  std::memcpy(pinned->data(), from, bytes);
  backend.synchronize();  // an upload does not wait for what may still read the memory
  const auto done = backend.make_event();
  backend.upload(pinned->data(), view_of(to, bytes), *done);
  backend.wait(*done);
  backend.synchronize();
}

void read_bytes(device::Backend& backend, const std::byte* from, size_t bytes, void* to) {
  if (bytes == 0) return;
  if (backend.is_host()) {
    std::memcpy(to, from, bytes);
    return;
  }
  const auto pinned = backend.allocate_pinned(bytes);
  backend.download(view_of(const_cast<std::byte*>(from), bytes), pinned->data());
  backend.synchronize();
  std::memcpy(to, pinned->data(), bytes);
}

std::vector<float> noise(uint64_t seed, int64_t count) {
  const base::Philox philox(seed, base::Purpose::test);
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = 2 * philox.uniform(i) - 1;
  return values;
}

}  // namespace gpipe::test
