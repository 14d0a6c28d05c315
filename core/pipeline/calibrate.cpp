#include "core/pipeline/calibrate.h"

#include "core/base/error.h"
#include "core/device/backend.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <limits>
#include <memory>
#include <thread>

namespace gpipe::pipeline {
namespace {

using device::TensorView;
using tensor::Shape;

constexpr double k_seconds_each = 0.08;
constexpr double k_worth_timing = 5e-4;

/// The shortest of the runs that fit the time, the first one left out.
template <class Work>
double best_seconds(device::Backend& backend, Work work) {
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); };
  work();
  backend.synchronize();
  double best = std::numeric_limits<double>::infinity();
  const auto start = Clock::now();
  do {
    const auto before = Clock::now();
    work();
    backend.synchronize();
    best = std::min(best, since(before));
  } while (since(start) < k_seconds_each);
  return std::max(best, 1e-9);
}

/// Device memory, given out piece by piece.
class Room {
 public:
  Room(device::Backend& backend, size_t bytes) : memory_(backend.allocate(bytes)) {}
  TensorView take(const Shape& shape) {
    return {take_bytes(static_cast<size_t>(shape.elements()) * sizeof(float)), shape, tensor::DType::f32};
  }
  std::byte* take_bytes(size_t bytes) {
    std::byte* at = memory_->data() + used_;
    used_ += (bytes + 63) / 64 * 64;
    GP_CHECK(used_ <= memory_->bytes());
    return at;
  }

 private:
  std::unique_ptr<device::Memory> memory_;
  size_t used_ = 0;
};

double seconds_of(device::Backend& backend, device::WeightedOp& op, const Shape& x_shape, const Shape& weight_shape,
                  const Shape& y_shape) {
  const auto bytes = [](const Shape& shape) { return static_cast<size_t>(shape.elements()) * sizeof(float); };
  Room room(backend, bytes(x_shape) + bytes(weight_shape) + bytes(y_shape) + op.packed_weight_bytes() + op.workspace_bytes() +
                         size_t{8} * 64);
  const TensorView x = room.take(x_shape);
  const TensorView weight = room.take(weight_shape);
  const TensorView y = room.take(y_shape);
  std::byte* packed = op.packed_weight_bytes() > 0 ? room.take_bytes(op.packed_weight_bytes()) : nullptr;
  std::byte* workspace = room.take_bytes(op.workspace_bytes());
  backend.fill(x, 0.5F);  // ordinary numbers: nothing that a processor could be slower or faster with
  backend.fill(weight, 0.5F);
  if (packed != nullptr) op.pack_weight(weight, packed, workspace);
  return best_seconds(backend, [&] { op.forward(x, {weight, packed}, {}, y, workspace); });
}

/// Operations a second of 3x3 convolutions of 64 channels.
double convolution_speed(device::Backend& backend, int64_t batch, double& seconds) {
  constexpr int64_t side = 28, channels = 64;
  const auto op = backend.convolution({.in_height = side,
                                       .in_width = side,
                                       .in_channels = channels,
                                       .out_height = side,
                                       .out_width = side,
                                       .out_channels = channels,
                                       .kernel = {3, 3},
                                       .stride = {1, 1},
                                       .dilation = {1, 1},
                                       .pad_top = 1,
                                       .pad_bottom = 1,
                                       .pad_left = 1,
                                       .pad_right = 1,
                                       .bias = false,
                                       .input_gradient = false},
                                      {batch});
  const Shape image{batch, side, side, channels};
  const double flops = 2.0 * 9 * channels * channels * side * side * static_cast<double>(batch);
  seconds = seconds_of(backend, *op, image, {channels, channels, 3, 3}, image);
  return flops / seconds;
}

double linear_speed(device::Backend& backend, int64_t rows, int64_t width, double& seconds) {
  const auto op = backend.linear({.in_features = width, .out_features = width, .bias = false, .input_gradient = false}, {rows});
  seconds = seconds_of(backend, *op, {rows, width}, {width, width}, {rows, width});
  return 2.0 * static_cast<double>(width * width * rows) / seconds;
}

/// `speed` of sizes 0, 1, ..., until a run takes as long as k_worth_timing, so that starting it and waiting for it do not count;
/// a processor's first does.
template <class Speed>
double best_speed(int sizes, Speed speed) {
  double best = 0, seconds = 0;
  for (int size = 0; size < sizes && seconds < k_worth_timing; ++size) {
    try {
      best = std::max(best, speed(size, seconds));
    } catch (const base::MemoryError&) {
      if (size == 0) throw;
      break;  // a device that has no room for a larger one
    }
  }
  return best;
}

DevicePeaks measure(device::Backend& backend) {
  DevicePeaks peaks;
  peaks.convolution_flops =
      best_speed(4, [&](int size, double& seconds) { return convolution_speed(backend, int64_t{8} << (2 * size), seconds); });
  peaks.linear_flops = best_speed(4, [&](int size, double& seconds) {
    return linear_speed(backend, int64_t{128} << (2 * size), int64_t{1024} << size, seconds);
  });
  {
    const Shape shape{int64_t{32} << 20};  // two of 128 MiB: caches of servers hold much
    Room room(backend, size_t{2} * (size_t{128} << 20));
    const TensorView a = room.take(shape);
    const TensorView b = room.take(shape);
    backend.fill(b, 0.5F);  // pages that were never written are all one
    peaks.memory_bytes = 3.0 * static_cast<double>(a.bytes()) / best_seconds(backend, [&] { backend.add(a, b, a); });
  }
  return peaks;
}

}  // namespace

DevicePeaks measure_peaks(const std::string& device, const device::BackendOptions& options) {
  const auto backend = device::open_backend(device, options);
  DevicePeaks peaks;
  std::exception_ptr error;
  std::thread([&] {
    try {
      backend->attach_thread();
      peaks = measure(*backend);
    } catch (...) { error = std::current_exception(); }
  }).join();
  if (error) std::rethrow_exception(error);
  return peaks;
}

}  // namespace gpipe::pipeline
