#include "core/train/loader.h"

#include "core/device/ops.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

namespace gpipe::train {

namespace {

constexpr std::align_val_t alignment{64};

struct AlignedDelete {
  void operator()(std::byte* memory) const { ::operator delete(memory, alignment); }
};
using AlignedBytes = std::unique_ptr<std::byte, AlignedDelete>;

AlignedBytes aligned_bytes(size_t count) { return AlignedBytes(static_cast<std::byte*>(::operator new(count, alignment))); }

struct Slot {
  AlignedBytes memory;
  Batch batch;
  std::exception_ptr error;
};

/// See Batch::targets. At least 1, so that a mini-batch of nothing but padding has a loss of 0.
int64_t count_targets(const Batch& batch) {
  if (batch.target.dtype != tensor::DType::i32) return batch.samples;
  const int32_t* targets = batch.target.i32();
  const int64_t rows = batch.target.shape[0];
  const int64_t count = batch.samples * (batch.target.elements() / rows);
  return std::max<int64_t>(1, count - std::count(targets, targets + count, device::k_ignored_target));
}

}  // namespace

EpochOrder order_of(const Dataset& data, const LoaderOptions& options) {
  std::vector<int> bucket_of;
  if (options.buckets && data.spec().buckets() > 1) {
    bucket_of.resize(static_cast<size_t>(data.size()));
    for (size_t i = 0; i < bucket_of.size(); ++i) bucket_of[i] = data.bucket_of(static_cast<int64_t>(i));
  }
  return {data.size(), std::move(bucket_of), options.batch_size, options.drop_last};
}

class Loader::State {
 public:
  State(std::shared_ptr<const Dataset> data, const LoaderOptions& options);
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() { stop(); }

  void start(int64_t epoch, int64_t index);
  const Batch& next();
  void stop();
  int64_t batches_per_epoch() const { return batches_; }
  int64_t samples_per_epoch() const { return samples_; }
  const Dataset& data() const { return *data_; }

 private:
  void produce(int64_t epoch, int64_t index);
  void begin_epoch(int64_t epoch);
  void fill(Batch& batch, int64_t epoch, int64_t index);
  void prepare(int64_t sample, int64_t epoch, std::span<std::byte> input, std::span<std::byte> target);

  const std::shared_ptr<const Dataset> data_;
  const LoaderOptions options_;
  int64_t batches_ = 0, samples_ = 0;  // of an epoch
  std::vector<Slot> slots_;

  // The loader's thread alone.
  EpochOrder order_;
  std::vector<float> scratch_;

  // Slots are used in turn. filled_ counts those made, taken_ those handed out; the last one handed out is in use.
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t filled_ = 0, taken_ = 0;
  bool in_use_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

Loader::State::State(std::shared_ptr<const Dataset> data, const LoaderOptions& options)
    : data_(std::move(data)), options_(options), order_(order_of(*data_, options)) {
  const int64_t size = data_->size(), n = options_.batch_size;
  GP_CHECK(n > 0 && options_.prefetch >= 0);
  if (size == 0) throw base::DataError("{}: there are no samples", data_->describe());
  batches_ = order_.batches();
  samples_ = order_.samples();
  const SampleSpec& spec = data_->spec();
  if (batches_ == 0) {
    const bool buckets = options_.buckets && spec.buckets() > 1;
    throw base::ConfigError("batch_size {} is more than the {} samples of {}{}: lower it, or set drop_last: false", n, size,
                            data_->describe(), buckets ? " in any of its buckets" : "");
  }
  GP_CHECK(!options_.augmentation.any() || spec.input.rank() == 3);
  scratch_.resize(static_cast<size_t>(spec.input.elements()));
  slots_.resize(static_cast<size_t>(options_.prefetch) + 1);
  for (Slot& slot : slots_) {
    Batch& batch = slot.batch;
    batch.input = {nullptr, spec.input.with_batch(n), spec.input_type};
    batch.target = {nullptr, spec.target.with_batch(n), spec.target_type};
    const size_t input_bytes = (batch.input.bytes() + 63) / 64 * 64;
    slot.memory = aligned_bytes(input_bytes + batch.target.bytes());
    batch.input.data = slot.memory.get();
    batch.target.data = slot.memory.get() + input_bytes;
  }
}

void Loader::State::start(int64_t epoch, int64_t index) {
  stop();
  GP_CHECK(epoch >= 0 && index >= 0 && index <= batches_);
  if (index == batches_) {
    ++epoch;
    index = 0;
  }
  filled_ = taken_ = 0;
  in_use_ = stopping_ = false;
  for (Slot& slot : slots_) slot.error = nullptr;
  try {
    thread_ = std::thread([this, epoch, index] { produce(epoch, index); });
  } catch (const std::system_error& error) {
    throw base::MemoryError("the loader's thread cannot be started: {}; raise the limit on threads (ulimit -u)", error.what());
  }
}

void Loader::State::stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

const Batch& Loader::State::next() {
  GP_CHECK(thread_.joinable());
  const auto began = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  if (in_use_) {
    in_use_ = false;
    ++taken_;
    changed_.notify_all();
  }
  changed_.wait(lock, [&] { return filled_ > taken_; });
  Slot& slot = slots_[taken_ % slots_.size()];
  if (slot.error) std::rethrow_exception(slot.error);  // stays: the next call meets it again
  in_use_ = true;
  slot.batch.seconds_waited = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return slot.batch;
}

void Loader::State::produce(int64_t epoch, int64_t index) {
  for (bool fresh = true;; fresh = false) {
    Slot* slot = nullptr;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || filled_ - taken_ < slots_.size(); });
      if (stopping_) return;
      slot = &slots_[filled_ % slots_.size()];
    }
    try {
      if (fresh || index == 0) begin_epoch(epoch);
      fill(slot->batch, epoch, index);
    } catch (...) { slot->error = std::current_exception(); }
    const bool failed = slot->error != nullptr;
    {
      const std::lock_guard lock(mutex_);
      ++filled_;
    }
    changed_.notify_all();
    if (failed) return;
    if (++index == batches_) {
      ++epoch;
      index = 0;
    }
  }
}

void Loader::State::begin_epoch(int64_t epoch) {
  data_->recheck();
  order_.begin(options_.seed, epoch, options_.shuffle);
}

void Loader::State::fill(Batch& batch, int64_t epoch, int64_t index) {
  const int64_t n = options_.batch_size;
  const EpochOrder::Batch chosen = order_.batch(index);
  const BucketShape shapes = data_->spec().bucket(chosen.bucket);
  batch.bucket = chosen.bucket;
  batch.input.shape = shapes.input.with_batch(n);
  batch.target.shape = shapes.target.with_batch(n);
  batch.samples = static_cast<int64_t>(chosen.samples.size());
  batch.epoch = epoch;
  batch.index = index;
  batch.last_of_epoch = index + 1 == batches_;
  const size_t input_row = batch.input.bytes() / static_cast<size_t>(n);
  const size_t target_row = batch.target.bytes() / static_cast<size_t>(n);
  const std::span inputs(batch.input.data, input_row * static_cast<size_t>(n));
  const std::span targets(batch.target.data, target_row * static_cast<size_t>(n));
  for (int64_t row = 0; row < batch.samples; ++row) {
    const auto r = static_cast<size_t>(row);
    prepare(chosen.samples[r], epoch, inputs.subspan(r * input_row, input_row), targets.subspan(r * target_row, target_row));
  }
  batch.targets = count_targets(batch);
  const auto last = static_cast<size_t>(batch.samples - 1);
  for (auto r = static_cast<size_t>(batch.samples); r < static_cast<size_t>(n); ++r) {
    std::copy_n(inputs.data() + last * input_row, input_row, inputs.data() + r * input_row);
    std::copy_n(targets.data() + last * target_row, target_row, targets.data() + r * target_row);
  }
}

void Loader::State::prepare(int64_t sample, int64_t epoch, std::span<std::byte> bytes, std::span<std::byte> target) {
  const Augmentation& augmentation = options_.augmentation;
  const tensor::Shape& shape = data_->spec().input;
  const std::span<float> input = as_floats(bytes);
  if (augmentation.random_crop > 0 || augmentation.horizontal_flip) {
    data_->read(sample, std::as_writable_bytes(std::span(scratch_)), target);
    crop_and_flip(augmentation, shape, options_.seed, epoch, sample, scratch_, input);
  } else {
    data_->read(sample, bytes, target);
  }
  if (options_.normalization.any()) options_.normalization.apply(input);
  if (augmentation.cutout > 0) cutout(augmentation, shape, options_.seed, epoch, sample, input);
}

Loader::Loader(std::shared_ptr<const Dataset> data, const LoaderOptions& options)
    : state_(std::make_unique<State>(std::move(data), options)) {}
Loader::~Loader() = default;

void Loader::start(int64_t epoch, int64_t index) { state_->start(epoch, index); }
const Batch& Loader::next() { return state_->next(); }
void Loader::stop() { state_->stop(); }
int64_t Loader::batches_per_epoch() const { return state_->batches_per_epoch(); }
int64_t Loader::samples_per_epoch() const { return state_->samples_per_epoch(); }
const Dataset& Loader::data() const { return state_->data(); }

}  // namespace gpipe::train
