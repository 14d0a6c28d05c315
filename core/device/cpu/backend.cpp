// The CPU leaf: a device is a group of cores with one OpenMP team, ops are oneDNN's or our own loops.
#include "core/device/backend.h"

#include "core/base/error.h"
#include "core/device/comm.h"
#include "core/device/cpu/memory.h"
#include "core/device/cpu/ops.h"
#include "core/device/leaves.h"

#include <cstring>
#include <fstream>

namespace gpipe::device {
namespace {

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name"))
      if (const size_t at = line.find(": "); at != std::string::npos) return line.substr(at + 2);
  return "unknown processor";
}

std::string library_name() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
}

// oneDNN has bf16 from AVX-512 on; without instructions of its own for it the processor is slower than with f32.
void check(Precision precision) {
  if (precision == Precision::bf16 && dnnl::get_effective_cpu_isa() < dnnl::cpu_isa::avx512_core)
    throw base::ConfigError("train.precision: bf16 wants a processor with AVX-512, this one ({}) has none; use f32",
                            processor_name());
}

/// Speeds that were measured belong to it.
std::string library_of(Precision precision) {
  return precision == Precision::f32 ? library_name() : fmt::format("{} in {}", library_name(), name_of(precision));
}

base::ConfigError no_groups() { return base::ConfigError("CPUs form no groups of devices; GPUs do, device: cuda"); }

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(const BackendOptions& options)
      : team_{options.threads, options.cores, dnnl::engine(dnnl::engine::kind::cpu, 0), {}, options.precision},
        info_{"cpu", processor_name(), cpu::memory_bytes(), 0, library_of(options.precision), options.threads} {
    check(options.precision);
    team_.stream = dnnl::stream(team_.engine);
  }

  const DeviceInfo& info() const override { return info_; }
  bool is_host() const override { return true; }
  std::unique_ptr<Memory> allocate(size_t bytes) override { return cpu::allocate(bytes); }
  std::unique_ptr<Memory> allocate_pinned(size_t bytes) override { return cpu::allocate(bytes); }
  void attach_thread() override { cpu::attach(team_); }

  std::unique_ptr<Event> make_event() override { return std::make_unique<Event>(); }
  void record(Event&) override {}
  void wait(const Event&) override {}
  double seconds_between(const Event&, const Event&) override { return 0; }
  void upload(const std::byte* from, const TensorView& to, Event&) override { std::memcpy(to.data, from, to.bytes()); }
  void download(const TensorView& from, std::byte* to) override { std::memcpy(to, from.data, from.bytes()); }
  void connect(const Backend&) override {}
  void send(const TensorView& from, const Backend&, std::byte* to, Event&) override { std::memcpy(to, from.data, from.bytes()); }
  void receive(const Backend&, const TensorView& from, const TensorView& to) override { copy(from, to); }
  bool reaches(const Backend& other) const override { return other.is_host(); }
  void synchronize() override {}

  GroupId make_group() const override { throw no_groups(); }
  std::unique_ptr<Comm> join(const GroupId&, int, int) override { throw no_groups(); }

  std::unique_ptr<WeightedOp> convolution(const ConvolutionSpec& spec, const Batches& batches) override {
    const cpu::PlanningScope scope(team_);
    return cpu::make_convolution(spec, batches, team_);
  }
  std::unique_ptr<WeightedOp> transposed_convolution(const TransposedConvolutionSpec& spec, const Batches& batches) override {
    const cpu::PlanningScope scope(team_);
    return cpu::make_transposed_convolution(spec, batches, team_);
  }
  std::unique_ptr<WeightedOp> linear(const LinearSpec& spec, const Batches& batches) override {
    const cpu::PlanningScope scope(team_);
    return cpu::make_linear(spec, batches, team_);
  }
  std::unique_ptr<PoolOp> pool(const PoolSpec& spec, const Batches& batches) override {
    return cpu::make_pool(spec, batches, team_);
  }
  std::unique_ptr<BatchNormOp> batch_norm(const BatchNormSpec& spec, const Batches& batches) override {
    return cpu::make_batch_norm(spec, batches, team_);
  }
  std::unique_ptr<GroupNormOp> group_norm(const GroupNormSpec& spec, const Batches& batches) override {
    return cpu::make_group_norm(spec, batches, team_);
  }
  std::unique_ptr<ActivationOp> activation(const ActivationSpec& spec) override { return cpu::make_activation(spec, team_); }
  std::unique_ptr<DropoutOp> dropout(const DropoutSpec& spec) override { return cpu::make_dropout(spec, team_); }
  std::unique_ptr<RearrangeOp> rearrange(const RearrangeSpec& spec) override { return cpu::make_rearrange(spec, team_); }
  std::unique_ptr<ResampleOp> resample(const ResampleSpec& spec) override { return cpu::make_resample(spec, team_); }
  std::unique_ptr<SoftmaxOp> softmax() override { return cpu::make_softmax(team_); }
  std::unique_ptr<ChannelScaleOp> channel_scale(int64_t channels) override { return cpu::make_channel_scale(channels, team_); }
  std::unique_ptr<LossOp> cross_entropy(const CrossEntropySpec& spec, const Batches&) override {
    return cpu::make_cross_entropy(spec, team_);
  }
  std::unique_ptr<LossOp> mean_squared_error() override { return cpu::make_mean_squared_error(team_); }
  std::unique_ptr<EmbeddingOp> embedding(const EmbeddingSpec& spec) override { return cpu::make_embedding(spec, team_); }
  std::unique_ptr<SampleAddOp> sample_add() override { return cpu::make_sample_add(team_); }
  std::unique_ptr<ShiftOp> shift(const ShiftSpec& spec) override { return cpu::make_shift(spec); }
  std::unique_ptr<AttentionOp> attention(const AttentionSpec& spec, const Batches&) override {
    return cpu::make_attention(spec, team_);
  }
  std::unique_ptr<ConcatOp> concat() override { return cpu::make_concat(team_); }

  void add(const TensorView& a, const TensorView& b, const TensorView& out) override { cpu::add(team_, a, b, out); }
  void copy(const TensorView& from, const TensorView& to) override { cpu::copy(team_, from, to); }
  void fill(const TensorView& to, float value) override { cpu::fill(team_, to, value); }
  void swap(const TensorView& a, const TensorView& b) override { cpu::swap(team_, a, b); }
  void sum_of_squares(std::span<const SumOfSquares> sums) override {
    for (const SumOfSquares& one : sums) *one.sum = cpu::sum_of_squares(team_, one.of);
  }
  void update(std::span<const ParameterUpdate> updates) override {
    for (const ParameterUpdate& one : updates) cpu::update(team_, one);
  }

 private:
  cpu::Team team_;
  DeviceInfo info_;
};

}  // namespace

std::unique_ptr<Backend> open_cpu(const BackendOptions& options) { return std::make_unique<CpuBackend>(options); }

std::vector<std::string> describe_cpu() {
  return {fmt::format("cpu: {}, {} cores, {:.1f} GiB, {}", processor_name(), omp_get_num_procs(),
                      static_cast<double>(cpu::memory_bytes()) / 0x1p30, library_name())};
}

}  // namespace gpipe::device
