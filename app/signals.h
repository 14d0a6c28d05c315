// Signals of a run: the first SIGINT, SIGTERM, SIGHUP or SIGUSR1 asks for a stop at the next mini-batch boundary, after a save;
// the second ends the process at once with 128 + its number.
#pragma once

#include <atomic>

namespace gpipe::app {

/// Installs the handlers; before threads start. SIGPIPE is ignored: its call fails instead.
void install_signal_handlers();
/// The number of the first signal, or 0.
const std::atomic<int>& stop_request();

}  // namespace gpipe::app
