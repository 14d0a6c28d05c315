// The CUDA leaf: a device of the pipeline is a compute stream and a copy stream on one GPU. Several may share a GPU.
#include "core/device/backend.h"

#include "core/base/error.h"
#include "core/device/cuda/context.h"
#include "core/device/cuda/event.h"
#include "core/device/cuda/ops.h"
#include "core/device/cuda/transfers.h"
#include "core/device/leaves.h"

namespace gpipe::device {
namespace {

using cuda::check;
using cuda::CudaEvent;
using cuda::own;

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

DeviceInfo info_of(int device, Precision precision = Precision::f32) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties", device);
  int runtime = 0, blas = 0;
  check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion", device);
  size_t free = 0, total = 0;
  check(cudaSetDevice(device), "cudaSetDevice", device);
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo", device);
  const size_t dnn = cudnnGetVersion();
  blas = CUBLAS_VERSION;
  const std::string in = precision == Precision::f32 ? "" : fmt::format(" in {}", name_of(precision));
  return {"cuda",
          properties.name,
          static_cast<int64_t>(properties.totalGlobalMem),
          static_cast<int64_t>(free),
          fmt::format("CUDA {}, cuDNN {}.{}.{}, cuBLAS {}.{}.{}{}", version_text(runtime), dnn / 10000, dnn / 100 % 100,
                      dnn % 100, blas / 10000, blas / 100 % 100, blas % 100, in),
          1,
          {properties.uuid.bytes, sizeof properties.uuid.bytes}};
}

class CudaBackend final : public Backend {
 public:
  CudaBackend(int device, const BackendOptions& options)
      : info_(info_of(device, options.precision)),
        context_(device, options.precision, options.algorithms, info_.name + ", " + info_.library),
        queue_(context_.queue()),
        transfers_(context_, options.transfer_timeout) {}

  const DeviceInfo& info() const override { return info_; }
  bool is_host() const override { return false; }
  std::unique_ptr<Memory> allocate(size_t bytes) override {
    auto memory = std::make_unique<cuda::DeviceMemory>(device(), bytes);
    check(cudaMemsetAsync(memory->data(), 0, bytes, context_.compute()), "cudaMemsetAsync", device());
    // Uploads do not wait for the compute stream, so the zeros must be there before anyone has the memory.
    check(cudaStreamSynchronize(context_.compute()), "cudaStreamSynchronize", device());
    return memory;
  }
  std::unique_ptr<Memory> allocate_pinned(size_t bytes) override { return std::make_unique<cuda::PinnedMemory>(device(), bytes); }
  void attach_thread() override { queue_.use(); }

  std::unique_ptr<Event> make_event() override {
    queue_.use();
    return std::make_unique<CudaEvent>(device());
  }
  void record(Event& event) override { record_on(context_.compute(), event); }
  void wait(const Event& event) override {
    queue_.use();
    check(cudaStreamWaitEvent(context_.compute(), own(event), 0), "cudaStreamWaitEvent", device());
  }
  double seconds_between(const Event& start, const Event& end) override {
    queue_.use();
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, own(start), own(end)), "cudaEventElapsedTime", device());
    return static_cast<double>(milliseconds) / 1000;
  }
  void upload(const std::byte* from, const TensorView& to, Event& done) override {
    queue_.use();
    check(cudaMemcpyAsync(to.data, from, to.bytes(), cudaMemcpyHostToDevice, context_.copies()), "cudaMemcpyAsync", device());
    record_on(context_.copies(), done);
  }
  void download(const TensorView& from, std::byte* to) override {
    queue_.use();
    check(cudaMemcpyAsync(to, from.data, from.bytes(), cudaMemcpyDeviceToHost, context_.compute()), "cudaMemcpyAsync", device());
  }
  void connect(const Backend& other) override { transfers_.connect(device_of(other)); }
  void send(const TensorView& from, const Backend& receiver, std::byte* to, Event& done) override {
    transfers_.send(from, device_of(receiver), to, own(done));
  }
  void receive(const Backend& owner, const TensorView& from, const TensorView& to) override {
    GP_CHECK_EQ(from.bytes(), to.bytes());
    if (reaches(owner)) return copy(from, to);
    transfers_.receive(device_of(owner), from, to);
  }
  bool reaches(const Backend& other) const override {
    const auto* mine = dynamic_cast<const CudaBackend*>(&other);
    return mine != nullptr && mine->device() == device();
  }
  void synchronize() override {
    context_.synchronize();
    transfers_.wait();
  }

  GroupId make_group() const override { return cuda::make_group(device()); }
  std::unique_ptr<Comm> join(const GroupId& id, int rank, int size) override { return transfers_.join(id, rank, size); }

  std::unique_ptr<WeightedOp> convolution(const ConvolutionSpec& spec, const Batches& batches) override {
    return cuda::make_convolution(spec, batches, context_);
  }
  std::unique_ptr<WeightedOp> transposed_convolution(const TransposedConvolutionSpec& spec, const Batches& batches) override {
    return cuda::make_transposed_convolution(spec, batches, context_);
  }
  std::unique_ptr<WeightedOp> linear(const LinearSpec& spec, const Batches& batches) override {
    return cuda::make_linear(spec, batches, context_);
  }
  std::unique_ptr<PoolOp> pool(const PoolSpec& spec, const Batches&) override { return cuda::make_pool(spec, queue_); }
  std::unique_ptr<BatchNormOp> batch_norm(const BatchNormSpec& spec, const Batches& batches) override {
    return cuda::make_batch_norm(spec, batches, queue_);
  }
  std::unique_ptr<GroupNormOp> group_norm(const GroupNormSpec& spec, const Batches& batches) override {
    return cuda::make_group_norm(spec, batches, queue_);
  }
  std::unique_ptr<ActivationOp> activation(const ActivationSpec& spec) override { return cuda::make_activation(spec, queue_); }
  std::unique_ptr<DropoutOp> dropout(const DropoutSpec& spec) override { return cuda::make_dropout(spec, queue_); }
  std::unique_ptr<RearrangeOp> rearrange(const RearrangeSpec& spec) override { return cuda::make_rearrange(spec, queue_); }
  std::unique_ptr<ResampleOp> resample(const ResampleSpec& spec) override { return cuda::make_resample(spec, queue_); }
  std::unique_ptr<SoftmaxOp> softmax() override { return cuda::make_softmax(queue_); }
  std::unique_ptr<ChannelScaleOp> channel_scale(int64_t channels) override { return cuda::make_channel_scale(channels, queue_); }
  std::unique_ptr<LossOp> cross_entropy(const CrossEntropySpec& spec, const Batches& batches) override {
    return cuda::make_cross_entropy(spec, batches, queue_);
  }
  std::unique_ptr<LossOp> mean_squared_error() override { return cuda::make_mean_squared_error(queue_); }
  std::unique_ptr<EmbeddingOp> embedding(const EmbeddingSpec& spec) override { return cuda::make_embedding(spec, queue_); }
  std::unique_ptr<SampleAddOp> sample_add() override { return cuda::make_sample_add(queue_); }
  std::unique_ptr<ShiftOp> shift(const ShiftSpec& spec) override { return cuda::make_shift(spec, queue_); }
  std::unique_ptr<AttentionOp> attention(const AttentionSpec& spec, const Batches& batches) override {
    return cuda::make_attention(spec, batches, context_);
  }
  std::unique_ptr<ConcatOp> concat() override { return cuda::make_concat(queue_); }

  void add(const TensorView& a, const TensorView& b, const TensorView& out) override { cuda::add(queue_, a, b, out); }
  void copy(const TensorView& from, const TensorView& to) override { cuda::copy(queue_, from, to); }
  void fill(const TensorView& to, float value) override { cuda::fill(queue_, to, value); }
  void swap(const TensorView& a, const TensorView& b) override { cuda::swap(queue_, a, b); }
  void sum_of_squares(std::span<const SumOfSquares> sums) override { cuda::sum_of_squares(queue_, sums); }
  void update(std::span<const ParameterUpdate> updates) override { cuda::update(queue_, updates); }

 private:
  int device() const { return context_.device(); }
  static int device_of(const Backend& other) {
    const auto* mine = dynamic_cast<const CudaBackend*>(&other);
    GP_CHECK(mine != nullptr);
    return mine->device();
  }
  void record_on(cudaStream_t stream, Event& event) const {
    queue_.use();
    check(cudaEventRecord(own(event), stream), "cudaEventRecord", device());
  }

  DeviceInfo info_;
  cuda::Context context_;
  const cuda::Queue& queue_;
  cuda::Transfers transfers_;
};

/// How many GPUs there are; with none, one sentence that says why.
struct Found {
  int count = 0;
  std::string why;
};
Found find_devices() {
  Found found;
  const cudaError_t status = cudaGetDeviceCount(&found.count);
  if (status == cudaSuccess && found.count > 0) return found;
  cudaGetLastError();
  found.count = 0;
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  if (driver == 0)
    found.why = "no NVIDIA driver is installed";
  else if (status == cudaErrorInsufficientDriver)
    found.why = fmt::format("the driver is for CUDA {}, this program for {}: install a newer driver", version_text(driver),
                            version_text(runtime));
  else if (status == cudaErrorNoDevice || status == cudaSuccess)
    found.why = "the driver shows no GPU (CUDA_VISIBLE_DEVICES may hide them)";
  else
    found.why = "cudaGetDeviceCount failed with " + cuda::text_of(status);
  return found;
}

}  // namespace

std::unique_ptr<Backend> open_cuda(int index, const BackendOptions& options) {
  const Found found = find_devices();
  if (found.count == 0) throw base::DeviceError("cuda:{} was asked for, but {}; --device cpu works everywhere", index, found.why);
  if (index >= found.count)
    throw base::DeviceError("cuda:{} was asked for, but there {} only: cuda:0{}", index,
                            found.count == 1 ? "is 1 GPU" : fmt::format("are {} GPUs", found.count),
                            found.count == 1 ? "" : fmt::format(" to cuda:{}", found.count - 1));
  return std::make_unique<CudaBackend>(index, options);
}

int count_cuda() { return find_devices().count; }

std::vector<std::string> describe_cuda() {
  const Found found = find_devices();
  if (found.count == 0) return {"cuda: none, " + found.why};
  std::vector<std::string> lines;
  for (int device = 0; device < found.count; ++device) {
    const DeviceInfo info = info_of(device);
    lines.push_back(fmt::format("cuda:{}: {}, {:.1f} GiB, {}", device, info.name, static_cast<double>(info.memory_bytes) / 0x1p30,
                                info.library));
  }
  return lines;
}

}  // namespace gpipe::device
