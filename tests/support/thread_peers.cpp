#include "tests/support/thread_peers.h"

#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <vector>

namespace gpipe::test {
namespace {

struct Message {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  size_t bytes = 0;
  bool done = false;
};

/// Where the messages of all ranks meet; a send is through when its receive has it.
struct Room {
  explicit Room(int ranks) : size(ranks) {}
  const int size;
  std::mutex mutex;
  std::map<std::tuple<int, int, int>, std::deque<std::shared_ptr<Message>>> sends, receives;  // by sender, receiver, tag
  std::exception_ptr failure;                                                                 // the first that was told
  int failed = -1;
};

class ThreadPeers final : public device::Peers {
 public:
  ThreadPeers(Room& room, int rank, double timeout_s) : Peers(timeout_s), room_(room), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return room_.size; }
  int on_this_machine() const override { return room_.size; }
  Request send(std::span<const std::byte> data, int to, int tag) override {
    return post({data.data(), nullptr, data.size()}, {rank_, to, tag}, room_.sends, room_.receives);
  }
  Request receive(std::span<std::byte> data, int from, int tag) override {
    return post({nullptr, data.data(), data.size()}, {from, rank_, tag}, room_.receives, room_.sends);
  }
  bool done(Request& request) override {
    if (request.handle == 0) return true;
    const std::lock_guard lock(room_.mutex);
    auto* message = reinterpret_cast<std::shared_ptr<Message>*>(request.handle);
    if (!(*message)->done) return false;
    delete message;
    request = {};
    return true;
  }
  void drop(Request& request) noexcept override {
    if (request.handle == 0) return;
    const std::lock_guard lock(room_.mutex);
    auto* message = reinterpret_cast<std::shared_ptr<Message>*>(request.handle);
    for (Queues* queues : {&room_.sends, &room_.receives})
      for (auto& [key, waiting] : *queues) std::erase(waiting, *message);
    delete message;
    request = {};
  }
  void give_up(base::ExitCode code, const std::string& why) noexcept override {
    const std::lock_guard lock(room_.mutex);
    if (room_.failure) return;
    room_.failure = std::make_exception_ptr(base::Error(code, why));
    room_.failed = rank_;
  }
  void check() override {
    const std::lock_guard lock(room_.mutex);
    if (room_.failure && room_.failed != rank_) std::rethrow_exception(room_.failure);
  }

 private:
  using Queues = decltype(Room::sends);
  Request post(Message made, const std::tuple<int, int, int>& key, Queues& mine, Queues& others) {
    auto message = std::make_shared<Message>(made);
    const std::lock_guard lock(room_.mutex);
    if (auto& waiting = others[key]; !waiting.empty()) {
      const std::shared_ptr<Message> other = waiting.front();
      waiting.pop_front();
      const Message& send = made.from != nullptr ? made : *other;
      const Message& receive = made.from != nullptr ? *other : made;
      GP_CHECK_EQ(send.bytes, receive.bytes);
      std::memcpy(receive.to, send.from, send.bytes);
      message->done = other->done = true;
    } else {
      mine[key].push_back(message);
    }
    return {reinterpret_cast<uintptr_t>(new std::shared_ptr<Message>(message))};
  }

  Room& room_;
  const int rank_;
};

}  // namespace

void with_peers(int size, const std::function<void(const std::shared_ptr<device::Peers>&)>& body, double timeout_s) {
  Room room(size);
  std::vector<std::thread> threads;
  std::vector<std::shared_ptr<ThreadPeers>> peers;
  for (int rank = 0; rank < size; ++rank) peers.push_back(std::make_shared<ThreadPeers>(room, rank, timeout_s));
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      try {
        body(peers[static_cast<size_t>(rank)]);
      } catch (...) {
        const base::Failure failure = base::failure_of(std::current_exception());
        peers[static_cast<size_t>(rank)]->give_up(failure.code, failure.message);
      }
    });
  for (std::thread& thread : threads) thread.join();
  if (room.failure) std::rethrow_exception(room.failure);
}

}  // namespace gpipe::test
