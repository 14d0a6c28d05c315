// Groups of GPUs, emulated or real, with a thread for each member.
#pragma once

#include "core/device/comm.h"
#include "tests/device_cuda/machine.h"

#include <exception>
#include <functional>
#include <thread>
#include <vector>

namespace gpipe::test {

/// One member a thread, each with a GPU of its own; what it throws comes out of the call, the lowest rank's first.
inline void with_members(int size, const device::BackendOptions& options,
                         const std::function<void(device::Backend&, device::Comm&)>& body) {
  const device::GroupId id = gpu(0)->make_group();
  std::vector<std::exception_ptr> errors(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      try {
        const auto backend = gpu(rank, options);
        const auto comm = backend->join(id, rank, size);
        body(*backend, *comm);
      } catch (...) { errors[static_cast<size_t>(rank)] = std::current_exception(); }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

}  // namespace gpipe::test
