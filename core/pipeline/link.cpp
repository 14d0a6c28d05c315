#include "core/pipeline/link.h"

#include "core/base/error.h"
#include "core/pipeline/edge.h"

#include <algorithm>
#include <array>

namespace gpipe::pipeline {
namespace {

/// What both ends tell each other before they join, so that neither waits in NCCL for one that will not come.
struct Introduction {
  device::GroupId id;        // of the sender
  std::array<char, 16> gpu;  // DeviceInfo::identity
};

class HostLink final : public Link {
 public:
  HostLink(device::Peers& peers, int peer, int tag, const std::atomic<bool>& aborted)
      : peers_(peers), peer_(peer), tag_(tag), aborted_(aborted) {}

  void send(const TensorView& from, Transit& transit) override {
    transit.request = peers_.send({from.data, from.bytes()}, peer_, tag_);
    transit.pending = true;
  }
  void receive(const TensorView& to, Transit& transit) override {
    transit.request = peers_.receive({to.data, to.bytes()}, peer_, tag_);
    transit.pending = true;
  }
  void wait(Transit& transit) override {
    if (!transit.pending) return;
    peers_.wait(transit.request, &aborted_);
    if (transit.request.handle != 0) throw Aborted{};
    transit.pending = false;
  }
  void drop(Transit& transit) noexcept override { peers_.drop(transit.request); }
  void abort() noexcept override {}  // it looks at the flag

 private:
  device::Peers& peers_;
  const int peer_, tag_;
  const std::atomic<bool>& aborted_;
};

class QueueLink final : public Link {
 public:
  QueueLink(device::Backend& here, std::unique_ptr<device::Comm> comm) : here_(here), comm_(std::move(comm)) {}

  void send(const TensorView& from, Transit& transit) override { exchange({from, 1, false}, transit); }
  void receive(const TensorView& to, Transit& transit) override { exchange({to, 0, true}, transit); }
  void wait(Transit& transit) override {
    if (transit.pending) here_.wait(*transit.event);
    transit.pending = false;
  }
  void drop(Transit&) noexcept override {}  // the device was waited for
  void abort() noexcept override { comm_->abort(); }

 private:
  void exchange(const device::Comm::Message& message, Transit& transit) {
    if (!transit.event) transit.event = here_.make_event();
    comm_->exchange({&message, 1}, *transit.event);
    transit.pending = true;
  }

  device::Backend& here_;
  std::unique_ptr<device::Comm> comm_;
};

}  // namespace

std::unique_ptr<Link> open_link(device::Peers& peers, device::Backend& here, bool sends, int peer, int number,
                                const std::atomic<bool>& aborted) {
  const int tag = device::Peers::first_tag + number;
  if (here.is_host()) return std::make_unique<HostLink>(peers, peer, tag, aborted);
  Introduction mine{}, other{};
  if (sends) mine.id = here.make_group();
  here.info().identity.copy(mine.gpu.data(), mine.gpu.size());
  auto sent = peers.send(std::as_bytes(std::span(&mine, 1)), peer, tag);
  auto received = peers.receive(std::as_writable_bytes(std::span(&other, 1)), peer, tag);
  peers.wait(received);
  peers.wait(sent);
  if (mine.gpu == other.gpu)
    throw base::ConfigError(
        "processes {} and {} have the same GPU, and NCCL wants one for each process: start fewer processes, or name others by "
        "pipeline.devices",
        std::min(peers.rank(), peer), std::max(peers.rank(), peer));
  return std::make_unique<QueueLink>(here, here.join(sends ? mine.id : other.id, sends ? 0 : 1, 2));
}

}  // namespace gpipe::pipeline
