// Backend: what one device of a pipeline can do: memory, a thread team or stream, and ops described once per shape.
//
// One Backend object belongs to one stage. It is made on any thread; ops are described on any thread, one at a time;
// ops run only on the thread that called attach_thread(), which is the stage's own.
#pragma once

#include "core/device/functors/update.h"
#include "core/device/ops.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace gpipe::device {

struct DeviceInfo {
  std::string kind;          // "cpu", "cuda"
  std::string name;          // "AMD EPYC ...", "NVIDIA H200"
  int64_t memory_bytes = 0;  // total; 0 = unknown
  std::string library;       // "oneDNN 2.6.3"
  int threads = 1;
};

/// Memory of one device, zeroed, aligned to 64 bytes; freed with the object. Throws MemoryError.
class Memory {
 public:
  Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  virtual ~Memory() = default;
  virtual std::byte* data() const = 0;
  virtual size_t bytes() const = 0;
};

class Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  virtual const DeviceInfo& info() const = 0;
  virtual std::unique_ptr<Memory> allocate(size_t bytes) = 0;
  /// Makes the calling thread this stage's: sizes its team and binds it to the stage's cores.
  virtual void attach_thread() = 0;

  virtual std::unique_ptr<WeightedOp> convolution(const ConvolutionSpec&, const Batches&) = 0;
  virtual std::unique_ptr<WeightedOp> transposed_convolution(const TransposedConvolutionSpec&, const Batches&) = 0;
  virtual std::unique_ptr<WeightedOp> linear(const LinearSpec&, const Batches&) = 0;
  virtual std::unique_ptr<PoolOp> pool(const PoolSpec&, const Batches&) = 0;
  virtual std::unique_ptr<BatchNormOp> batch_norm(const BatchNormSpec&, const Batches&) = 0;
  /// Batches are rows.
  virtual std::unique_ptr<GroupNormOp> group_norm(const GroupNormSpec&, const Batches&) = 0;
  virtual std::unique_ptr<ActivationOp> activation(const ActivationSpec&) = 0;
  virtual std::unique_ptr<DropoutOp> dropout(const DropoutSpec&) = 0;
  virtual std::unique_ptr<RearrangeOp> rearrange(const RearrangeSpec&) = 0;
  virtual std::unique_ptr<ResampleOp> resample(const ResampleSpec&) = 0;
  virtual std::unique_ptr<SoftmaxOp> softmax() = 0;
  virtual std::unique_ptr<ChannelScaleOp> channel_scale(int64_t channels) = 0;
  virtual std::unique_ptr<LossOp> cross_entropy(const CrossEntropySpec&) = 0;
  virtual std::unique_ptr<LossOp> mean_squared_error() = 0;
  virtual std::unique_ptr<EmbeddingOp> embedding(const EmbeddingSpec&) = 0;
  virtual std::unique_ptr<SampleAddOp> sample_add() = 0;
  virtual std::unique_ptr<ShiftOp> shift(const ShiftSpec&) = 0;
  virtual std::unique_ptr<AttentionOp> attention(const AttentionSpec&) = 0;
  virtual std::unique_ptr<ConcatOp> concat() = 0;

  // Plain element-wise work on f32; views of equal size. `out` may be `a` or `b`.
  virtual void add(const TensorView& a, const TensorView& b, const TensorView& out) = 0;
  virtual void copy(const TensorView& from, const TensorView& to) = 0;
  virtual void fill(const TensorView& to, float value) = 0;
  virtual void swap(const TensorView& a, const TensorView& b) = 0;
  /// Sum of squares in double, in an order that does not depend on the number of threads.
  virtual double sum_of_squares(const TensorView& x) = 0;
  /// weight, gradient and as many slots as the rule has (one more with UpdateCommon::averaging), all of the weight's size; the
  /// gradient is left as it is.
  virtual void update(const Update& rule, const TensorView& weight, const TensorView& gradient,
                      std::span<const TensorView> slots) = 0;
};

struct BackendOptions {
  int threads = 1;
  std::vector<int> cores;  // to bind the team to; empty: not bound
};

/// "cpu" or "cuda:0". Throws DeviceError (exit 9) when the device is not there.
std::unique_ptr<Backend> open_backend(const std::string& device, const BackendOptions& options);
/// What `gpipe-train devices` prints: a line a device, and for an absent kind one sentence that says why.
std::vector<std::string> describe_devices();

}  // namespace gpipe::device
