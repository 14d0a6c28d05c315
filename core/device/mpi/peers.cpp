// Peers over MPI: messages between processes that mpirun or srun started. A module of its own, libgpipe_mpi.so, which is loaded
// when there is more than one process (core/device/load_peers.cpp).
#include "core/device/peers.h"

#include <atomic>
#include <chrono>
#include <limits>
#include <mpi.h>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace gpipe::device {
namespace {

constexpr int k_failure_tag = 2;  // of those that Peers keeps; 0 and 1 are its own
constexpr double k_goodbye_s = 2;

void check_mpi(int status, const char* call) {
  if (status == MPI_SUCCESS) return;
  char words[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(status, words, &length);
  throw base::PeerError("{} failed: {}", call, words);
}

int count_of(size_t bytes) {
  if (bytes > static_cast<size_t>(std::numeric_limits<int>::max()))
    throw base::ConfigError("a message of {} bytes is beyond what MPI counts in 32 bits; try more pipeline.micro_batches", bytes);
  return static_cast<int>(bytes);
}

class MpiPeers final : public Peers {
 public:
  MpiPeers() : Peers(0) {
    int threads = MPI_THREAD_SINGLE;
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &threads), "MPI_Init_thread");
    if (threads < MPI_THREAD_MULTIPLE)
      throw base::PeerError("this MPI does not let several threads call it; an Open MPI with MPI_THREAD_MULTIPLE does");
    check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &all_), "MPI_Comm_dup");
    MPI_Comm_set_errhandler(all_, MPI_ERRORS_RETURN);
    check_mpi(MPI_Comm_rank(all_, &rank_), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(all_, &size_), "MPI_Comm_size");
  }
  ~MpiPeers() override { MPI_Finalize(); }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Request send(std::span<const std::byte> data, int to, int tag) override {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Isend(data.data(), count_of(data.size()), MPI_BYTE, to, tag, all_, &request), "MPI_Isend");
    return {reinterpret_cast<uintptr_t>(request), false};
  }
  Request receive(std::span<std::byte> data, int from, int tag) override {
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Irecv(data.data(), count_of(data.size()), MPI_BYTE, from, tag, all_, &request), "MPI_Irecv");
    return {reinterpret_cast<uintptr_t>(request), true};
  }
  bool done(Request& request) override {
    if (request.handle == 0) return true;
    auto mine = reinterpret_cast<MPI_Request>(request.handle);
    int is_done = 0;
    check_mpi(MPI_Test(&mine, &is_done, MPI_STATUS_IGNORE), "MPI_Test");
    if (is_done != 0) request = {};
    return is_done != 0;
  }

  void drop(Request& request) noexcept override {
    if (request.handle == 0) return;
    auto mine = reinterpret_cast<MPI_Request>(request.handle);
    if (request.receives) {
      MPI_Cancel(&mine);
      MPI_Wait(&mine, MPI_STATUS_IGNORE);  // for the cancelling, or for what was half here
    } else {
      MPI_Request_free(&mine);
    }
    request = {};
  }

  void give_up(base::ExitCode code, const std::string& why) noexcept override {
    if (gave_up_.exchange(true)) return;
    notice_.assign(1, static_cast<char>(code));
    notice_ += why;
    std::vector<MPI_Request> sent(static_cast<size_t>(size_), MPI_REQUEST_NULL);
    for (int peer = 0; peer < size_; ++peer)
      if (peer != rank_)
        MPI_Isend(notice_.data(), static_cast<int>(notice_.size()), MPI_BYTE, peer, k_failure_tag, all_,
                  &sent[static_cast<size_t>(peer)]);
    const auto late = std::chrono::steady_clock::now() + std::chrono::duration<double>(k_goodbye_s);
    for (int is_done = 0; is_done == 0 && std::chrono::steady_clock::now() < late; std::this_thread::yield())
      if (MPI_Testall(size_, sent.data(), &is_done, MPI_STATUSES_IGNORE) != MPI_SUCCESS) return;
  }

  void check() override {
    const std::lock_guard lock(mutex_);
    if (!told_) {
      int is_there = 0;
      MPI_Status status;
      check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, k_failure_tag, all_, &is_there, &status), "MPI_Iprobe");
      if (is_there == 0) return;
      int bytes = 0;
      MPI_Get_count(&status, MPI_BYTE, &bytes);
      std::string notice(static_cast<size_t>(bytes), '\0');
      check_mpi(MPI_Recv(notice.data(), bytes, MPI_BYTE, status.MPI_SOURCE, k_failure_tag, all_, MPI_STATUS_IGNORE), "MPI_Recv");
      told_.emplace(static_cast<base::ExitCode>(static_cast<unsigned char>(notice[0])),
                    fmt::format("process {}: {}", status.MPI_SOURCE, notice.substr(1)));
    }
    throw base::Error(*told_);
  }

 private:
  MPI_Comm all_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
  std::atomic<bool> gave_up_{false};
  std::string notice_;
  std::mutex mutex_;  // of told_
  std::optional<base::Error> told_;
};

}  // namespace
}  // namespace gpipe::device

/// The caller owns the object.
extern "C" gpipe::device::Peers* gpipe_open_peers() { return new gpipe::device::MpiPeers; }
