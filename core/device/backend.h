// Backend: what one device of a pipeline can do: memory, a thread team or streams, and ops described once per shape.
//
// One Backend object belongs to one device of the pipeline. It is made on any thread; ops are described on any thread, one
// at a time; ops run only on the thread that called attach_thread(), which is the device's own, or while that one is idle.
//
// On a host device (a CPU) work is done when its call returns. On others it is queued: ops run in the order of their calls
// (the *queue*), uploads and sends beside them (the *copy queue*); only events and synchronize() order the two.
#pragma once

#include "core/device/ops.h"
#include "core/device/precision.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace gpipe::device {

class Algorithms;
class Comm;
struct GroupId;

struct DeviceInfo {
  std::string kind;          // "cpu", "cuda"
  std::string name;          // "AMD EPYC ...", "NVIDIA H200"
  int64_t memory_bytes = 0;  // total; 0 = unknown
  int64_t free_bytes = 0;    // of a device with memory of its own, when it was opened
  std::string library;       // "oneDNN 2.6.3"
  int threads = 1;
  std::string identity;  // of a GPU, whatever process sees it under whatever index: its UUID
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

/// A mark in a device's queue that queues of other devices can wait for; each record() moves it.
class Event {
 public:
  Event() = default;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  virtual ~Event() = default;
};

class Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  virtual const DeviceInfo& info() const = 0;
  /// Whether the device's memory is the host's, and work is done when its call returns.
  virtual bool is_host() const = 0;
  virtual std::unique_ptr<Memory> allocate(size_t bytes) = 0;
  /// Memory of the host that uploads and downloads are fast from.
  virtual std::unique_ptr<Memory> allocate_pinned(size_t bytes) = 0;
  /// Makes the calling thread this stage's: sizes its team and binds it to the stage's cores.
  virtual void attach_thread() = 0;

  virtual std::unique_ptr<Event> make_event() = 0;
  virtual void record(Event& event) = 0;
  /// Later work of the queue starts after what came before the event's last record(), on whatever device that was.
  virtual void wait(const Event& event) = 0;
  /// Seconds between two events of this device that have happened; 0 on a host device.
  virtual double seconds_between(const Event& start, const Event& end) = 0;
  /// On the copy queue, which does not wait for ops; `from` is pinned and stays as it is until `done`.
  virtual void upload(const std::byte* from, const TensorView& to, Event& done) = 0;
  /// In the queue; `to` is pinned and may be read after synchronize().
  virtual void download(const TensorView& from, std::byte* to) = 0;
  /// Makes ready for send() to and receive() from a device that this one does not reach: the first of them takes long otherwise.
  virtual void connect(const Backend& other) = 0;
  /// To memory of a device that this one does not reach: beside the queue, after the queue so far; then `done`.
  virtual void send(const TensorView& from, const Backend& receiver, std::byte* to, Event& done) = 0;
  /// In the queue: copies from memory of `owner`, which is idle and may be this device.
  virtual void receive(const Backend& owner, const TensorView& from, const TensorView& to) = 0;
  /// Whether ops of this device may read and write memory of the other.
  virtual bool reaches(const Backend& other) const = 0;
  /// The host waits for all work so far. Throws what went wrong in it; on a host device nothing is left to wait for.
  virtual void synchronize() = 0;

  /// For a new group of devices of this kind (comm.h). ConfigError where the kind has no groups.
  virtual GroupId make_group() const = 0;
  /// Becomes member `rank` of `size`; returns when all have joined. PeerError when they have not in time.
  virtual std::unique_ptr<Comm> join(const GroupId& id, int rank, int size) = 0;

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
  virtual std::unique_ptr<LossOp> cross_entropy(const CrossEntropySpec&, const Batches&) = 0;
  virtual std::unique_ptr<LossOp> mean_squared_error() = 0;
  virtual std::unique_ptr<EmbeddingOp> embedding(const EmbeddingSpec&) = 0;
  virtual std::unique_ptr<SampleAddOp> sample_add() = 0;
  virtual std::unique_ptr<ShiftOp> shift(const ShiftSpec&) = 0;
  virtual std::unique_ptr<AttentionOp> attention(const AttentionSpec&, const Batches&) = 0;
  virtual std::unique_ptr<ConcatOp> concat() = 0;

  // Plain element-wise work on f32; views of equal size. `out` may be `a` or `b`.
  virtual void add(const TensorView& a, const TensorView& b, const TensorView& out) = 0;
  virtual void copy(const TensorView& from, const TensorView& to) = 0;
  virtual void fill(const TensorView& to, float value) = 0;
  virtual void swap(const TensorView& a, const TensorView& b) = 0;
  /// Each in an order that follows from its size alone.
  virtual void sum_of_squares(std::span<const SumOfSquares> sums) = 0;
  /// Gradients are left as they are.
  virtual void update(std::span<const ParameterUpdate> updates) = 0;
};

struct BackendOptions {
  int threads = 1;
  std::vector<int> cores;  // to bind the team to; empty: not bound
  Precision precision = Precision::f32;
  std::shared_ptr<Algorithms> algorithms = {};  // of the run; null: the library's suggestions, deterministic ones alone
  double transfer_timeout = 600;                // seconds that work between devices may take once its stream has come to it
};

/// "cpu" or "cuda:0". Throws DeviceError (exit 9) when the device is not there, ConfigError for a precision it has not.
std::unique_ptr<Backend> open_backend(const std::string& device, const BackendOptions& options);
/// How many devices of a kind there are: 1 of "cpu", GPUs of "cuda" (0 without a driver).
int count_devices(const std::string& kind);
/// What `gpipe-train devices` prints: a line a device, and for an absent kind one sentence that says why.
std::vector<std::string> describe_devices();

}  // namespace gpipe::device
