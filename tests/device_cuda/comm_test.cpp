// Groups of GPUs that send to each other and add up.
#include "tests/device_cuda/members.h"
#include "tests/support/device_block.h"
#include "tests/support/messages.h"

#include <doctest/doctest.h>

#include <array>
#include <barrier>

using namespace gpipe;
using namespace gpipe::test;
using device::Comm;

constexpr int64_t k_count = 3000;

TEST_CASE("members of a group send in a ring and add up; all have the same bits") {
  for (const int size : {1, 2, 4}) {
    const Machine machine({.devices = 4, .delay_us = 50});
    if (size > 1 && size > device::count_devices("cuda")) continue;  // of real ones
    std::vector<std::vector<float>> sums(static_cast<size_t>(size));
    std::barrier all(size);  // what frees memory waits for devices: nobody may be on the way to another member then
    with_members(size, {}, [&](device::Backend& backend, Comm& comm) {
      CHECK(comm.size() == size);
      const auto rank = static_cast<uint64_t>(comm.rank());
      const DeviceBlock x(backend, {k_count}, noise(rank, k_count)), y(backend, {k_count}), doubled(backend, {k_count});
      const auto done = backend.make_event();
      all.arrive_and_wait();
      for (int round = 0; round < 3; ++round) {
        backend.add(x, x, doubled);  // what is sent is not there yet when it is asked for
        const int next = (comm.rank() + 1) % size, before = (comm.rank() + size - 1) % size;
        const std::array messages{Comm::Message{y, before, true}, Comm::Message{doubled, next, false}};
        comm.exchange(messages, *done);
        backend.wait(*done);
        backend.synchronize();
        std::vector<float> wanted = noise(static_cast<uint64_t>(before), k_count);
        for (float& value : wanted) value *= 2;
        all.arrive_and_wait();
        CHECK(y.values() == wanted);
        all.arrive_and_wait();
      }
      comm.sum(x, *done);
      backend.wait(*done);
      backend.synchronize();
      all.arrive_and_wait();
      sums[rank] = x.values();
    });
    std::vector<float> wanted = noise(0, k_count);
    for (int rank = 1; rank < size; ++rank) {
      const std::vector<float> more = noise(static_cast<uint64_t>(rank), k_count);
      for (size_t i = 0; i < wanted.size(); ++i) wanted[i] += more[i];
    }
    for (const std::vector<float>& sum : sums) {
      CHECK(sum == sums.front());
      for (size_t i = 0; i < sum.size(); ++i) CHECK(sum[i] == doctest::Approx(wanted[i]).epsilon(1e-5));
    }
  }
}

TEST_CASE("CPUs form no groups") {
  check_contains(message_of([] { cpu()->make_group(); }, base::ExitCode::usage), {"CPUs form no groups"});
}
