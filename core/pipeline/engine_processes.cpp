// What an engine does with those of other processes: channels to their devices, what all must know, tensors for process 0.
#include "core/device/peers.h"
#include "core/pipeline/engine.h"
#include "core/pipeline/plan_parts.h"

#include <algorithm>

namespace gpipe::pipeline {

constexpr size_t k_piece_bytes = size_t{1} << 30;  // of a tensor: MPI counts in 32 bits

device::Peers* Engine::peers() const { return plan_.options.peers.get(); }

void Engine::open_channels() {
  if (peers() == nullptr) return;
  int number = 0;
  for (const Channel::Ends& ends : remote_pairs(plan_)) {
    const int link = number++;
    const bool sends = plan_.is_here(ends.from);
    if (!sends && !plan_.is_here(ends.to)) continue;
    const size_t first = first_stage_of(plan_, sends ? ends.from : ends.to);
    auto open =
        open_link(*peers(), *plan_.stages[first].backend, sends, plan_.process_of(sends ? ends.to : ends.from), link, aborted_);
    channels_[ends] = std::make_unique<Channel>(plan_, ends, std::move(open), [this, sends](int edge, int micro) {
      const EdgePlan& of = plan_.edges[static_cast<size_t>(edge)];
      return stages_[static_cast<size_t>(sends ? of.from : of.to)]->slot_view(edge, micro);
    });
  }
}

Channel* Engine::channel(size_t from, size_t to) const {
  const auto& device_of = plan_.schedule.device_of;
  const auto found = channels_.find({device_of[from], device_of[to]});
  return found == channels_.end() ? nullptr : found->second.get();
}

/// What each process knows a part of, nobody the same: all know all of it then.
void Engine::put_together(std::span<float> results) {
  if (peers() == nullptr) return;
  std::vector<double> all(results.begin(), results.end());
  all.insert(all.end(), sums_of_squares_.begin(), sums_of_squares_.end());
  peers()->sum(all);
  for (size_t i = 0; i < results.size(); ++i) results[i] = static_cast<float>(all[i]);
  std::copy(all.begin() + static_cast<std::ptrdiff_t>(results.size()), all.end(), sums_of_squares_.begin());
}

void Engine::share_busy() {
  for (int device = 0; device < plan_.schedule.devices; ++device)
    if (!plan_.is_here(device)) busy_seconds_[static_cast<size_t>(device)] = 0;
  peers()->sum(busy_seconds_);
}

std::span<float> Engine::results_of(const MiniBatch& batch, int losses) const {
  return {batch.results, static_cast<size_t>(2 * losses * plan_.micro_batches.mini_batch)};
}

/// Before put_together(): what the stages here do not write is another process's.
void Engine::clear_parts(std::span<float> results) {
  if (peers() == nullptr) return;
  std::fill(results.begin(), results.end(), 0.0F);
  std::fill(sums_of_squares_.begin(), sums_of_squares_.end(), 0.0);
}

/// Process 0 gets the tensors of all others; their gradients stay where they are.
void Engine::gather() {
  if (peers() == nullptr) return;
  const int tag = device::Peers::first_tag + static_cast<int>(remote_pairs(plan_).size());
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    const int process = plan_.process_of(plan_.schedule.device_of[stage]);
    if (process == 0 || (peers()->rank() != 0 && !stages_[stage])) continue;
    const auto move = [&](const TensorView& view) {
      for (size_t at = 0; at < view.bytes(); at += k_piece_bytes) {
        const std::span piece(view.data + at, std::min(k_piece_bytes, view.bytes() - at));
        auto request = stages_[stage] ? peers()->send(piece, 0, tag) : peers()->receive(piece, process, tag);
        peers()->wait(request);
      }
    };
    for (const StateTensor& tensor : stages_[stage] ? stages_[stage]->tensors() : remote_[stage]->tensors()) {
      move(tensor.value);
      for (const TensorView& slot : tensor.slots) move(slot);
    }
  }
}

bool Engine::any(bool mine) const { return peers() == nullptr ? mine : peers()->any(mine); }

}  // namespace gpipe::pipeline
