// Control of the emulated CUDA devices, for tests.
//
// The library implements the calls of the CUDA runtime, cuBLAS, cuBLASLt, cuDNN and NCCL that core/device/cuda uses, against
// the real headers, on the CPU, for any number of virtual devices. It is as strict as the documentation of those calls:
// every misuse gives the documented status and a sentence in violations(), which a test must read. README.md beside this file
// says what is checked and what is not there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace gpipe::emulated {

struct Options {
  int devices = 1;
  size_t memory_bytes = size_t{1} << 30;  // of each device
  uint64_t seed = 1;                      // of the delays, measured times, and orders of nondeterministic sums
  int delay_us = 20;           // most streams wait at random before a task, usually less than this, at times 20x; 0: never
  bool peers = true;           // devices can be given access to each other's memory
  double nccl_timeout_s = 10;  // unmatched NCCL work older than this is reported as a deadlock
  /// After a wait of the host, a touch of device memory by it ends the process. The environment variable
  /// GPIPE_EMULATED_CUDA_PROTECT sets this for every reset().
  bool protect = false;
};

/// New devices, empty; waits for the streams of the old ones, aborts NCCL work that would wait for ever and frees all.
/// Unread violations and the counts of coverage() stay. The first CUDA call of a process does reset() with what the environment
/// variable GPIPE_EMULATED_CUDA says ("devices=4,memory_mib=512,seed=7,delay_us=0,peers=0,protect=1,fail=cudaMalloc:3:2").
void reset(const Options& options = {});

/// What was wrong since the last call, a sentence each: call, argument, reason. Calling it marks them as read; a process that
/// ends with unread ones prints them and aborts.
std::vector<std::string> violations();

/// A sentence for each device or pinned allocation, stream, event, handle, descriptor and communicator not given back.
std::vector<std::string> leaks();

enum class Failure {
  once,          // only that call returns the code
  sticky,        // that call and every later one on the device, as after cudaErrorIllegalAddress; queued work is dropped
  asynchronous,  // the call succeeds; its work ends the device, so a later call reports it
  lost,          // as sticky, and the device can no longer be selected or described
};
/// The n-th call (from 1, counted from now) of `function` fails with `code`: the status type of that function's library for
/// `once`, else a cudaError_t. `device` -1: on any. For launches `function` is "gpipe_emulated_launch" or the kernel's name.
void fail_at(const std::string& function, int64_t n, int code, int device = -1, Failure failure = Failure::once);
void clear_failures();

/// Calls so far, by function; functions that were never called are there with 0.
std::map<std::string, int64_t> coverage();

/// How often the host had to wait for a device: synchronisation of a stream, event or device, cudaFree, cudaFreeHost, and
/// copies from or to pageable memory that wait.
int64_t host_waits();

/// Bytes of device memory in use; an allocation counts as a multiple of so many.
size_t used_bytes(int device);
size_t allocation_granule();

/// Fresh memory holds this pattern: a signalling NaN as f32, a NaN as bf16 and f16.
inline constexpr uint16_t kPoison16 = 0x7FA1;
inline constexpr uint32_t kPoison32 = 0x7FA17FA1;

}  // namespace gpipe::emulated
