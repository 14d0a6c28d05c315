#include "app/signals.h"

#include <csignal>
#include <unistd.h>

namespace gpipe::app {
namespace {

std::atomic<int> requested{0};
static_assert(std::atomic<int>::is_always_lock_free);

void on_signal(int number) {
  int none = 0;
  if (requested.compare_exchange_strong(none, number)) return;
  _exit(128 + number);
}

}  // namespace

void install_signal_handlers() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) sigaction(number, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

const std::atomic<int>& stop_request() { return requested; }

}  // namespace gpipe::app
