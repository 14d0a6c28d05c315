#include "core/device/cuda/ranks.h"

#include "core/base/error.h"
#include "core/device/cuda/memory.h"

#include <cstring>

namespace gpipe::device::cuda {
namespace {

constexpr auto k_between_looks = std::chrono::milliseconds(50);
constexpr double k_goodbye_s = 10;  // for the ranks to end together; then they are aborted
// A GPU's blocks for one group. Groups of several pairs must all have their blocks at once, whatever the order they come in.
constexpr int k_blocks = 4;

EventHandle make_event(int device, unsigned flags) {
  check(cudaSetDevice(device), "cudaSetDevice", device);
  return make<EventHandle>(cudaEventCreateWithFlags, "cudaEventCreateWithFlags", device, flags);
}

void set_device(int device) { check(cudaSetDevice(device), "cudaSetDevice", device); }

/// Of a query of a stream or an event: whether all is done there.
bool is_done(cudaError_t status, const char* call, int device) {
  if (status == cudaErrorNotReady)
    cudaGetLastError();  // must not show at the next launch
  else
    check(status, call, device);
  return status == cudaSuccess;
}

const char* name_of(Ranks::Work::Kind kind) {
  switch (kind) {
    case Ranks::Work::Kind::send: return "ncclSend";
    case Ranks::Work::Kind::receive: return "ncclRecv";
    case Ranks::Work::Kind::sum: return "ncclAllReduce";
  }
  return "";
}

}  // namespace

Ranks::Ranks(const GroupId& id, int size, std::vector<Member> here, double timeout_s, std::string words)
    : size_(size), timeout_s_(timeout_s), words_(std::move(words)) {
  static_assert(sizeof(GroupId::bytes) == sizeof(ncclUniqueId::internal));
  ncclUniqueId unique;
  std::memcpy(unique.internal, id.bytes.data(), sizeof unique.internal);
  here_.reserve(here.size());  // some versions of NCCL use a handle's address until its rank has joined
  try {
    for (const Member& member : here) {
      set_device(member.device);
      Here& mine = here_.emplace_back();
      mine.of = member;
      mine.stream =
          make<Stream>(cudaStreamCreateWithFlags, "cudaStreamCreateWithFlags", member.device, unsigned{cudaStreamNonBlocking});
      mine.arrived = make_event(member.device, cudaEventDisableTiming);
      ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      config.blocking = 0;
      config.maxCTAs = k_blocks;
      const ncclResult_t status = ncclCommInitRankConfig(&mine.handle, size, unique, member.rank, &config);
      if (status != ncclInProgress) cuda::check(status, "ncclCommInitRankConfig", member.device);
    }
    wait_until_launched("joining the group");
    watcher_ = std::thread([this] { watch(); });
  } catch (...) {
    abort();
    throw;
  }
}

Ranks::~Ranks() {
  for (const Here& here : here_) {  // watched: what would not end is aborted
    cudaSetDevice(here.of.device);
    cudaStreamSynchronize(here.stream.get());
  }
  {
    const std::lock_guard lock(mutex_);
    quit_ = true;
  }
  quitting_.notify_all();
  watcher_.join();
  if (failure_ != nullptr || !end_well()) abort();
}

/// Ranks of a group end together: what is on its way to others arrives first.
bool Ranks::end_well() noexcept {
  for (const Here& here : here_)
    if (const ncclResult_t status = ncclCommFinalize(here.handle); status != ncclSuccess && status != ncclInProgress)
      return false;
  const auto late = Clock::now() + std::chrono::duration<double>(k_goodbye_s);
  for (Here& here : here_) {
    while (state(here) == ncclInProgress && Clock::now() < late) std::this_thread::yield();
    if (state(here) != ncclSuccess) return false;
  }
  bool good = true;
  for (Here& here : here_) good = ncclCommDestroy(std::exchange(here.handle, nullptr)) == ncclSuccess && good;
  return good;
}

void Ranks::abort() noexcept {
  for (Here& here : here_) {
    if (here.handle == nullptr) continue;
    cudaSetDevice(here.of.device);
    ncclCommAbort(std::exchange(here.handle, nullptr));
  }
}

ncclResult_t Ranks::state(const Here& here) const {
  ncclResult_t status = ncclInternalError;
  const ncclResult_t asked = here.handle == nullptr ? ncclInvalidUsage : ncclCommGetAsyncError(here.handle, &status);
  return asked == ncclSuccess ? status : asked;
}

/// What was asked for is on the streams, or, at first, all ranks have joined.
void Ranks::wait_until_launched(const char* call) {
  const auto late = Clock::now() + std::chrono::duration<double>(timeout_s_);
  for (const Here& here : here_)
    for (ncclResult_t status = state(here); status != ncclSuccess; status = state(here)) {
      if (status != ncclInProgress) cuda::check(status, call, here.of.device);
      if (stopped_) throw base::PeerError("cuda:{}: {} of {} was given up", here.of.device, call, words_);
      if (Clock::now() > late)
        throw base::PeerError("cuda:{}: {} of {} took longer than {:g} s: rank {} of {} waits for the others", here.of.device,
                              call, words_, timeout_s_, here.of.rank, size_);
      std::this_thread::yield();
    }
}

Ranks::Pending& Ranks::next_pending() {
  const int device = here_.front().of.device;
  if (spare_.empty()) spare_.push_back({make_event(device, cudaEventDisableTiming), make_event(device, cudaEventDisableTiming)});
  pending_.push_back(std::move(spare_.back()));
  spare_.pop_back();
  return pending_.back();
}

void Ranks::run(std::span<const Work> work, cudaEvent_t after, cudaEvent_t done) {
  const std::lock_guard lock(mutex_);
  if (failure_ != nullptr) std::rethrow_exception(failure_);
  try {
    const Here& first = here_.front();
    for (const Here& here : here_) {
      set_device(here.of.device);
      cuda::check(cudaStreamWaitEvent(here.stream.get(), after, 0), "cudaStreamWaitEvent", here.of.device);
    }
    set_device(first.of.device);
    const Pending& pending = next_pending();
    cuda::check(cudaEventRecord(pending.started.get(), first.stream.get()), "cudaEventRecord", first.of.device);
    cuda::check(ncclGroupStart(), "ncclGroupStart", first.of.device);
    ncclResult_t issued = ncclSuccess;
    const Work* failed = nullptr;
    for (const Work& piece : work) {
      issued = issue(piece);
      if (issued == ncclSuccess || issued == ncclInProgress) continue;
      failed = &piece;
      break;
    }
    const ncclResult_t ended = ncclGroupEnd();  // also of a group that failed
    if (failed != nullptr) cuda::check(issued, name_of(failed->kind), here_[failed->member].of.device);
    if (ended != ncclInProgress) cuda::check(ended, "ncclGroupEnd", first.of.device);
    wait_until_launched("a transfer");
    for (const Here& here : here_) {
      if (&here == &first) continue;
      set_device(here.of.device);
      cuda::check(cudaEventRecord(here.arrived.get(), here.stream.get()), "cudaEventRecord", here.of.device);
      set_device(first.of.device);
      cuda::check(cudaStreamWaitEvent(first.stream.get(), here.arrived.get(), 0), "cudaStreamWaitEvent", first.of.device);
    }
    set_device(first.of.device);
    for (const cudaEvent_t event : {pending.ended.get(), done})
      cuda::check(cudaEventRecord(event, first.stream.get()), "cudaEventRecord", first.of.device);
  } catch (...) {
    fail(std::current_exception());
    throw;
  }
}

void Ranks::try_out() {
  std::vector<DeviceMemory> memory;
  std::vector<Work> work;
  for (size_t place = 0; place < here_.size(); ++place) {
    const Here& here = here_[place];
    const DeviceMemory& both = memory.emplace_back(here.of.device, 2 * sizeof(float));
    cuda::check(cudaMemsetAsync(both.data(), 0, both.bytes(), here.stream.get()), "cudaMemsetAsync", here.of.device);
    const int peer = 1 - here.of.rank;
    work.push_back({Work::Kind::send, place, peer, both.data(), sizeof(float)});
    work.push_back({Work::Kind::receive, place, peer, both.data() + sizeof(float), sizeof(float)});
  }
  const int device = here_.front().of.device;
  const EventHandle begun = make_event(device, cudaEventDisableTiming), tried = make_event(device, cudaEventDisableTiming);
  cuda::check(cudaEventRecord(begun.get(), here_.front().stream.get()), "cudaEventRecord", device);
  run(work, begun.get(), tried.get());
  wait();
}

ncclResult_t Ranks::issue(const Work& work) const {
  const Here& here = here_[work.member];
  switch (work.kind) {
    case Work::Kind::send: return ncclSend(work.data, work.bytes, ncclUint8, work.peer, here.handle, here.stream.get());
    case Work::Kind::receive: return ncclRecv(work.data, work.bytes, ncclUint8, work.peer, here.handle, here.stream.get());
    case Work::Kind::sum:
      return ncclAllReduce(work.data, work.data, work.bytes / sizeof(float), ncclFloat32, ncclSum, here.handle,
                           here.stream.get());
  }
  return ncclInvalidArgument;
}

void Ranks::wait() {
  for (const Here& here : here_) {  // without the lock: what would not end is aborted meanwhile
    set_device(here.of.device);
    cuda::check(cudaStreamSynchronize(here.stream.get()), "cudaStreamSynchronize", here.of.device);
  }
  const std::lock_guard lock(mutex_);
  if (failure_ == nullptr) look();
  if (failure_ != nullptr) std::rethrow_exception(failure_);
}

void Ranks::stop() noexcept {
  stopped_ = true;  // who is in run() comes out, and has failed
  const std::lock_guard lock(mutex_);
  if (failure_ == nullptr) fail(std::make_exception_ptr(base::PeerError("work of {} was given up", words_)));
}

void Ranks::fail(std::exception_ptr error) {
  failure_ = std::move(error);
  abort();
}

void Ranks::watch() {
  std::unique_lock lock(mutex_);
  while (!quitting_.wait_for(lock, k_between_looks, [this] { return quit_; }))
    if (failure_ == nullptr) look();
}

/// With the lock.
void Ranks::look() {
  try {
    for (const Here& here : here_) {
      set_device(here.of.device);
      cuda::check(state(here), "work between GPUs", here.of.device);
      is_done(cudaEventQuery(here.arrived.get()), "cudaEventQuery", here.of.device);  // throws if the device broke
    }
    const int device = here_.front().of.device;
    const auto happened = [device](const EventHandle& event) {
      return is_done(cudaEventQuery(event.get()), "cudaEventQuery", device);
    };
    set_device(device);
    while (!pending_.empty() && happened(pending_.front().ended)) {
      spare_.push_back({std::move(pending_.front().started), std::move(pending_.front().ended)});
      pending_.pop_front();
    }
    if (pending_.empty() || !happened(pending_.front().started)) return;
    Pending& oldest = pending_.front();
    const auto now = Clock::now();
    if (oldest.since == Clock::time_point::max()) oldest.since = now;
    if (now - oldest.since > std::chrono::duration<double>(timeout_s_))
      throw base::PeerError("cuda:{}: a transfer of {} did not end within {:g} s: rank {} of {} waits for the others", device,
                            words_, timeout_s_, here_.front().of.rank, size_);
  } catch (...) { fail(std::current_exception()); }
}

}  // namespace gpipe::device::cuda
