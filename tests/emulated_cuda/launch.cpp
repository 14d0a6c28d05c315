#include "tests/emulated_cuda/launch.h"

#include "tests/emulated_cuda/memory.h"
#include "tests/emulated_cuda/stream.h"

#include <csignal>
#include <cstring>
#include <string>
#include <unistd.h>

namespace gpipe::emulated {

namespace {

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
void say(const char* text) { [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, std::strlen(text)); }

void say_address(const void* pointer) {
  char address[20] = "0x";
  for (int i = 0; i < 16; ++i) address[2 + i] = "0123456789abcdef"[(reinterpret_cast<uintptr_t>(pointer) >> (60 - 4 * i)) & 15];
  address[18] = '\n';
  address[19] = 0;
  say(address);
}

void on_fault(int signal, siginfo_t* info, void*) {
  const char* task = running_task();
  if (*task) {
    say("emulated CUDA: a stream that ran ");
    say(task);
    say(" touched freed memory, or memory past an allocation, or none, at ");
    say_address(info->si_addr);
  } else if (find_allocation(info->si_addr)) {  // without the lock: the process ends
    say("emulated CUDA: the host touched memory of a device, or freed memory, at ");
    say_address(info->si_addr);
  }
  std::signal(signal, SIG_DFL);
  raise(signal);
}
#endif

}  // namespace

void install_fault_handler() {
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, nullptr);
  sigaction(SIGBUS, &action, nullptr);
#endif
}

}  // namespace gpipe::emulated

void gpipe_emulated_launch(cudaStream_t stream, const char* kernel, std::function<void()> body) {
  using namespace gpipe::emulated;
  runtime_call("gpipe_emulated_launch", device_of(stream), [&] {
    const Entry named = enter_alias(kernel, device_of(stream));
    if (named.injected) return static_cast<cudaError_t>(named.code);
    if (named.device_error != cudaSuccess) return named.device_error;
    auto task = make_task(std::string("kernel ") + kernel, std::move(body));
    Lock lock;
    CUstream_st* to = find_stream(kernel, stream);
    if (!to) return cudaErrorInvalidResourceHandle;
    if (to->device != current_device()) {
      report(std::string("kernel ") + kernel + ": its stream is of device " + std::to_string(to->device) +
             ", but the current device is " + std::to_string(current_device()));
      return cudaErrorInvalidResourceHandle;
    }
    push(*to, std::move(task));
    return cudaSuccess;
  });
}
