#include "core/base/error.h"

namespace gpipe::base {

const char* status_word(ExitCode code) noexcept {
  switch (code) {
    case ExitCode::ok: return "finished";
    case ExitCode::bug: return "internal_error";
    case ExitCode::usage: return "bad_configuration";
    case ExitCode::data: return "bad_data";
    case ExitCode::memory: return "out_of_memory";
    case ExitCode::diverged: return "diverged";
    case ExitCode::file_system: return "file_system_error";
    case ExitCode::peer: return "peer_lost";
    case ExitCode::checkpoint: return "bad_checkpoint";
    case ExitCode::device: return "no_device";
    case ExitCode::stopped: return "stopped";
  }
  return "internal_error";
}

}  // namespace gpipe::base
