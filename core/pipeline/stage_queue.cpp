// What a stage does besides on a device that queues its work and has memory of its own: mirrors of its tensors on the host,
// events where micro-batches cross the cuts, one wait at the end of a step.
#include "core/pipeline/channel.h"
#include "core/pipeline/stage.h"

namespace gpipe::pipeline {

void Stage::make_mirrors() {
  size_t bytes = 0;
  const auto count = [&](const TensorView& view) { bytes += align_up(view.bytes()); };
  for (const StateTensor& tensor : tensors_) {
    for (const TensorView* view : {&tensor.value, &tensor.gradient}) count(*view);
    for (const TensorView& slot : tensor.slots) count(slot);
  }
  mirror_memory_ = backend().allocate_pinned(bytes);
  std::byte* next = mirror_memory_->data();
  const auto mirror = [&](TensorView& view) {
    if (!view) return;
    view.data = next;
    next += align_up(view.bytes());
  };
  mirrors_ = tensors_;
  for (StateTensor& tensor : mirrors_) {
    mirror(tensor.value);
    mirror(tensor.gradient);
    for (TensorView& slot : tensor.slots) mirror(slot);
  }
}

/// Calls f(on the device, on the host) for values and slots, and gradients if wanted.
template <class F>
void Stage::each_mirrored(bool gradients, F&& f) {
  for (size_t i = 0; i < mirrors_.size(); ++i) {
    f(tensors_[i].value, mirrors_[i].value);
    if (gradients && tensors_[i].gradient) f(tensors_[i].gradient, mirrors_[i].gradient);
    for (size_t slot = 0; slot < tensors_[i].slots.size(); ++slot) f(tensors_[i].slots[slot], mirrors_[i].slots[slot]);
  }
}

void Stage::fetch(bool gradients) {
  if (host_) return;
  each_mirrored(gradients, [&](const TensorView& here, const TensorView& there) { backend().download(here, there.data); });
  backend().synchronize();
}

void Stage::push() {
  if (host_) return;
  backend().synchronize();  // nothing in the queue uses the old values
  const auto done = backend().make_event();
  each_mirrored(false, [&](const TensorView& here, const TensorView& there) { backend().upload(there.data, here, *done); });
  backend().wait(*done);
  backend().synchronize();
}

void Stage::begin(const MiniBatch& batch) {
  busy_seconds_ = 0;
  now_ = &buckets_.at(static_cast<size_t>(batch.bucket));
  if (host_) return;
  if (task_observer_ != nullptr) settle();  // the update before
  timed_.clear();
  clock_->begin();
  staging_->begin(batch);
}

void Stage::settle() { backend().synchronize(); }

void Stage::finish(const MiniBatch& batch, bool training, std::span<double> sums_of_squares) {
  if (host_) return;
  staging_->download(batch, training);
  settle();
  staging_->hand_over(batch, training, sums_of_squares);
  for (size_t piece = 0; piece < clock_->count(); ++piece) {
    busy_seconds_ += clock_->seconds(piece);
    if (task_observer_ != nullptr && training) task_observer_->task(timed_[piece], clock_->started(piece), clock_->ended(piece));
  }
}

TensorView Stage::slot_view(int index, int micro) const {
  const EdgePlan& of = now_->plan.edges[static_cast<size_t>(index)];
  const graph::Value& value = now_->plan.network.values[static_cast<size_t>(of.value)];
  const size_t at = static_cast<size_t>(micro % of.slots) * of.slot_bytes;
  const int64_t samples = plan_.micro_batches.sizes[static_cast<size_t>(micro)];
  return {slots_[static_cast<size_t>(index)].slots + at, value.shape.with_batch(samples), value.dtype};
}

void Stage::wait_readable(int index, int micro) const {
  if (Channel* remote = channel(index)) return remote->wait_readable(index, micro);
  edge(index).wait_readable(micro);
  queue_beside([&] { backend().wait(edge(index).filled(micro)); });
}

void Stage::wait_writable(int index, int micro) const {
  if (Channel* remote = channel(index)) return remote->wait_writable(index, micro);
  edge(index).wait_writable(micro);
  queue_beside([&] { backend().wait(edge(index).freed(micro)); });
}

void Stage::publish(int index, int micro) const {
  if (Channel* remote = channel(index)) return remote->publish(index, micro);
  queue_beside([&] {
    const EdgePlan& of = now_->plan.edges[static_cast<size_t>(index)];
    const SlotBase& base = slots_[static_cast<size_t>(index)];
    if (!of.sent) return backend().record(edge(index).filled(micro));
    const TensorView from = slot_view(index, micro);
    backend().send(from, *plan_.stages[static_cast<size_t>(of.to)].backend, base.send_to + (from.data - base.slots),
                   edge(index).filled(micro));
  });
  edge(index).publish(micro);
}

void Stage::release(int index, int micro) const {
  if (Channel* remote = channel(index)) return remote->release(index, micro);
  queue_beside([&] { backend().record(edge(index).freed(micro)); });
  edge(index).release(micro);
}

void Stage::observe(const Instruction& instruction, const Task& task, std::span<const TensorView> outputs, double seconds) {
  if (host_ || !observer_->reads_outputs()) {
    observer_->instruction(index_, task, instruction, host_ ? outputs : std::span<const TensorView>(), seconds);
    return;
  }
  std::vector<TensorView> copies(outputs.begin(), outputs.end());
  size_t bytes = 0;
  for (const TensorView& view : copies) bytes += align_up(view ? view.bytes() : 0);
  // Kept: giving it back may wait for a GPU that waits for what another thread is about to launch.
  if (!observed_ || observed_->bytes() < bytes) observed_ = backend().allocate_pinned(bytes);
  std::byte* next = observed_->data();
  for (TensorView& view : copies) {
    if (!view) continue;
    backend().download(view, next);
    view.data = next;
    next += align_up(view.bytes());
  }
  backend().synchronize();
  observer_->instruction(index_, task, instruction, copies, seconds);
}

}  // namespace gpipe::pipeline
