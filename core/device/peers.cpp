#include "core/device/peers.h"

#include <chrono>
#include <thread>
#include <vector>

namespace gpipe::device {
namespace {

constexpr int k_sum_tag = 0, k_broadcast_tag = 1;

}  // namespace

void Peers::wait(Request& request, const std::atomic<bool>* stopped) {
  using Clock = std::chrono::steady_clock;
  const auto late = Clock::now() + std::chrono::duration<double>(timeout_s_);
  try {
    for (int round = 0; !done(request); ++round) {
      if (stopped != nullptr && stopped->load(std::memory_order_relaxed)) return;
      if (round < 200) {  // most messages are on their way already
        std::this_thread::yield();
        continue;
      }
      check();
      if (Clock::now() > late)
        throw base::PeerError(
            "process {} waited longer than {:g} s for another: one hangs, or works that long; then a larger "
            "pipeline.transfer_timeout helps",
            rank(), timeout_s_);
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  } catch (...) {
    drop(request);
    throw;
  }
}

void Peers::sum(std::span<double> values) {
  std::vector<double> other(values.size());
  if (rank() == 0) {
    for (int peer = 1; peer < size(); ++peer) {
      Request request = receive(std::as_writable_bytes(std::span(other)), peer, k_sum_tag);
      wait(request);
      for (size_t i = 0; i < values.size(); ++i) values[i] += other[i];
    }
  } else {
    Request request = send(std::as_bytes(values), 0, k_sum_tag);
    wait(request);
  }
  broadcast(std::as_writable_bytes(values));
}

bool Peers::any(bool mine) {
  double count = mine ? 1 : 0;
  sum({&count, 1});
  return count > 0;
}

void Peers::broadcast(std::span<std::byte> data) {
  for (int peer = 1; rank() == 0 && peer < size(); ++peer) {
    Request request = send(data, peer, k_broadcast_tag);
    wait(request);
  }
  if (rank() == 0) return;
  Request request = receive(data, 0, k_broadcast_tag);
  wait(request);
}

std::string Peers::broadcast(std::string text) {
  uint64_t length = text.size();
  broadcast(std::as_writable_bytes(std::span(&length, 1)));
  text.resize(length);
  broadcast(std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace gpipe::device
