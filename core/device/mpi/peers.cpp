// Peers over Open MPI: messages between processes that mpirun or srun started. A module of its own, libgpipe_mpi.so, which is
// loaded when there is more than one process (core/device/load_peers.cpp).
#include "core/device/peers.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <mpi.h>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace gpipe::device {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int k_failure_tag = 2;                                // of those that Peers keeps; 0 and 1 are its own
constexpr auto k_between_looks = std::chrono::milliseconds(1);  // every 0.2 ms cost a step a tenth of its time
constexpr auto k_goodbye = std::chrono::seconds(2);             // for a message that may have nobody to take it
// For all to end together after a failure. Process 0 has said what there is to say; others let it.
constexpr auto k_last_goodbye_of_first = std::chrono::seconds(5), k_last_goodbye = std::chrono::seconds(60);
constexpr size_t k_longest_notice = 2000;  // goes without the other side's help

/// How this process will end, for the last call to MPI, which comes after the program has said all.
std::atomic<int> failed_with{0};

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

/// Tests until all are through, or time is over.
bool all_done(std::vector<MPI_Request>& requests, Clock::duration limit) {
  const auto late = Clock::now() + limit;
  for (int is_done = 0; Clock::now() < late; std::this_thread::yield()) {
    const int status = MPI_Testall(static_cast<int>(requests.size()), requests.data(), &is_done, MPI_STATUSES_IGNORE);
    if (status != MPI_SUCCESS || is_done != 0) return status == MPI_SUCCESS;
  }
  return false;
}

/// Registered for the end of the process. All come here together; after a failure, those that do not in time are ended.
void finalize() {
  if (failed_with != 0) {
    std::vector<MPI_Request> all(1, MPI_REQUEST_NULL);
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Ibarrier(MPI_COMM_WORLD, all.data());
    if (!all_done(all, rank == 0 ? k_last_goodbye_of_first : k_last_goodbye)) MPI_Abort(MPI_COMM_WORLD, failed_with);
  }
  MPI_Finalize();
}

class MpiPeers final : public Peers {
 public:
  MpiPeers() : Peers(0) {
    int threads = MPI_THREAD_SINGLE;
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &threads), "MPI_Init_thread");
    std::atexit(finalize);
    if (threads < MPI_THREAD_MULTIPLE)
      throw base::PeerError("this MPI does not let several threads call it; an Open MPI with MPI_THREAD_MULTIPLE does");
    check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &all_), "MPI_Comm_dup");
    MPI_Comm_set_errhandler(all_, MPI_ERRORS_RETURN);
    check_mpi(MPI_Comm_rank(all_, &rank_), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(all_, &size_), "MPI_Comm_size");
    MPI_Comm machine = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split_type(all_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &machine), "MPI_Comm_split_type");
    check_mpi(MPI_Comm_size(machine, &on_this_machine_), "MPI_Comm_size");
    MPI_Comm_free(&machine);
    helper_ = std::thread([this] { help(); });
  }
  ~MpiPeers() override {
    quit_ = true;
    helper_.join();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int on_this_machine() const override { return on_this_machine_; }
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
    std::vector<MPI_Request> mine(1, reinterpret_cast<MPI_Request>(request.handle));
    if (request.receives) {
      MPI_Cancel(mine.data());
      MPI_Wait(mine.data(), MPI_STATUS_IGNORE);  // for the cancelling, or for what was half here
    } else if (!all_done(mine, k_goodbye)) {
      MPI_Request_free(mine.data());
    }
    request = {};
  }

  void give_up(base::ExitCode code, const std::string& why) noexcept override {
    if (gave_up_.exchange(true)) return;
    failed_with = static_cast<int>(code);
    notice_.assign(1, static_cast<char>(code));
    notice_ += why.substr(0, k_longest_notice);
    std::vector<MPI_Request> sent(static_cast<size_t>(size_), MPI_REQUEST_NULL);
    for (int peer = 0; peer < size_; ++peer)
      if (peer != rank_)
        MPI_Isend(notice_.data(), static_cast<int>(notice_.size()), MPI_BYTE, peer, k_failure_tag, all_,
                  &sent[static_cast<size_t>(peer)]);
    all_done(sent, k_goodbye);
  }

  void check() override {
    const std::lock_guard lock(mutex_);
    if (told_) throw base::Error(*told_);
  }

 private:
  /// Messages move when somebody calls MPI, and stages that compute do not; and this is how notices are heard.
  void help() {
    while (!quit_) {
      try {
        listen();
      } catch (const base::Error& error) {
        const std::lock_guard lock(mutex_);
        if (!told_) told_ = error;
      }
      std::this_thread::sleep_for(k_between_looks);
    }
  }

  void listen() {
    int is_there = 0, bytes = 0;
    MPI_Status status;
    check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, k_failure_tag, all_, &is_there, &status), "MPI_Iprobe");
    if (is_there == 0) return;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    std::string notice(static_cast<size_t>(bytes), '\0');
    check_mpi(MPI_Recv(notice.data(), bytes, MPI_BYTE, status.MPI_SOURCE, k_failure_tag, all_, MPI_STATUS_IGNORE), "MPI_Recv");
    const auto code = static_cast<base::ExitCode>(static_cast<unsigned char>(notice[0]));
    const std::lock_guard lock(mutex_);
    if (!told_) told_.emplace(code, fmt::format("process {}: {}", status.MPI_SOURCE, notice.substr(1)));
  }

  MPI_Comm all_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1, on_this_machine_ = 1;
  std::atomic<bool> gave_up_{false}, quit_{false};
  std::string notice_;
  std::mutex mutex_;  // of told_
  std::optional<base::Error> told_;
  std::thread helper_;
};

}  // namespace
}  // namespace gpipe::device

/// The caller owns the object.
extern "C" gpipe::device::Peers* gpipe_open_peers() { return new gpipe::device::MpiPeers; }
