#include "core/base/error.h"

#include <new>
#include <system_error>

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

Failure failure_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) { return {known.exit_code(), known.what()}; } catch (const std::bad_alloc&) {
    return {ExitCode::memory, "out of memory on the host: try smaller micro-batches, or more partitions"};
  } catch (const std::system_error& refused) {
    return {ExitCode::file_system, refused.what()};
  } catch (const std::exception& other) { return {ExitCode::bug, fmt::format("internal error: {}", other.what())}; } catch (...) {
    return {ExitCode::bug, "internal error of an unknown kind"};
  }
}

}  // namespace gpipe::base
