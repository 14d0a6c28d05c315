#include "core/device/cuda/transfers.h"

#include <cstring>

namespace gpipe::device::cuda {
namespace {

using Kind = Ranks::Work::Kind;

class CudaComm final : public Comm {
 public:
  CudaComm(Transfers& transfers, int device, const GroupId& id, int rank, int size, double timeout_s)
      : transfers_(transfers), ranks_(id, size, {{device, rank}}, timeout_s, fmt::format("a group of {} GPUs", size)) {
    if (size == 2) ranks_.try_out();
    transfers_.add(ranks_);
  }
  ~CudaComm() override { transfers_.remove(ranks_); }

  int rank() const override { return ranks_.member(0).rank; }
  int size() const override { return ranks_.size(); }
  void exchange(std::span<const Message> messages, Event& done) override {
    work_.clear();
    for (const Message& message : messages)
      work_.push_back({message.receives ? Kind::receive : Kind::send, 0, message.peer, message.view.data, message.view.bytes()});
    ranks_.run(work_, transfers_.queue_so_far(), own(done));
  }
  void sum(const TensorView& x, Event& done) override {
    const Ranks::Work work{Kind::sum, 0, 0, x.data, x.bytes()};
    ranks_.run({&work, 1}, transfers_.queue_so_far(), own(done));
  }
  void abort() noexcept override { ranks_.stop(); }

 private:
  Transfers& transfers_;
  Ranks ranks_;
  std::vector<Ranks::Work> work_;  // reused by every call
};

}  // namespace

GroupId make_group(int device) {
  ncclUniqueId unique;
  check(ncclGetUniqueId(&unique), "ncclGetUniqueId", device);
  GroupId id;
  std::memcpy(id.bytes.data(), unique.internal, id.bytes.size());
  return id;
}

std::unique_ptr<Comm> Transfers::join(const GroupId& id, int rank, int size) {
  return std::make_unique<CudaComm>(*this, device(), id, rank, size, timeout_s_);
}

cudaEvent_t Transfers::queue_so_far() {
  context_.queue().use();
  if (!ready_) ready_ = std::make_unique<CudaEvent>(device());
  cuda::check(cudaEventRecord(ready_->get(), context_.compute()), "cudaEventRecord", device());
  return ready_->get();
}

bool Transfers::sees(int other) {
  const auto [place, is_new] = seen_.emplace(other, false);
  if (!is_new) return place->second;
  context_.queue().use();
  int can = 0;
  cuda::check(cudaDeviceCanAccessPeer(&can, device(), other), "cudaDeviceCanAccessPeer", device());
  if (can == 0) return false;
  const cudaError_t status = cudaDeviceEnablePeerAccess(other, 0);
  if (status == cudaErrorPeerAccessAlreadyEnabled)
    cudaGetLastError();  // by another device of the pipeline on this GPU
  else
    cuda::check(status, "cudaDeviceEnablePeerAccess", device());
  return place->second = true;
}

Ranks& Transfers::link(int other) {
  std::unique_ptr<Ranks>& link = links_[other];
  if (link) return *link;
  link = std::make_unique<Ranks>(make_group(device()), 2, std::vector<Ranks::Member>{{device(), 0}, {other, 1}}, timeout_s_,
                                 fmt::format("cuda:{} and cuda:{}", device(), other));
  link->try_out();
  return *link;
}

void Transfers::connect(int other) {
  if (!sees(other)) link(other);
}

void Transfers::through_link(int other, Kind mine, const TensorView& here, std::byte* there, cudaEvent_t done) {
  const Kind theirs = mine == Kind::send ? Kind::receive : Kind::send;
  const Ranks::Work work[]{{mine, 0, 1, here.data, here.bytes()}, {theirs, 1, 0, there, here.bytes()}};
  link(other).run(work, queue_so_far(), done);
}

void Transfers::send(const TensorView& from, int receiver, std::byte* to, cudaEvent_t done) {
  if (!sees(receiver)) return through_link(receiver, Kind::send, from, to, done);
  cuda::check(cudaStreamWaitEvent(context_.copies(), queue_so_far(), 0), "cudaStreamWaitEvent", device());
  cuda::check(cudaMemcpyPeerAsync(to, receiver, from.data, device(), from.bytes(), context_.copies()), "cudaMemcpyPeerAsync",
              device());
  cuda::check(cudaEventRecord(done, context_.copies()), "cudaEventRecord", device());
}

void Transfers::receive(int owner, const TensorView& from, const TensorView& to) {
  context_.queue().use();
  if (sees(owner)) {
    cuda::check(cudaMemcpyPeerAsync(to.data, device(), from.data, owner, to.bytes(), context_.compute()), "cudaMemcpyPeerAsync",
                device());
    return;
  }
  if (!received_) received_ = std::make_unique<CudaEvent>(device());
  through_link(owner, Kind::receive, to, from.data, received_->get());
  context_.queue().use();
  cuda::check(cudaStreamWaitEvent(context_.compute(), received_->get(), 0), "cudaStreamWaitEvent", device());
}

void Transfers::wait() {
  for (const auto& [other, link] : links_)
    if (link) link->wait();
  for (Ranks* group : groups_) group->wait();
}

}  // namespace gpipe::device::cuda
