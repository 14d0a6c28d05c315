// Errors: one small family of exceptions, each bound to the exit code that the program ends with.
//
// A message says what was wanted, what was found, where, and what to try. Context ("stage 1, node conv2,
// micro-batch 3, step 12") is added while the exception travels up; `main` alone prints it and ends the program.
#pragma once

#include <fmt/format.h>

#include <exception>
#include <string>
#include <utility>

namespace gpipe::base {

/// How the process ends; README.md lists them for users.
enum class ExitCode : int {
  ok = 0,
  bug = 1,
  usage = 2,
  data = 3,
  memory = 4,
  diverged = 5,
  file_system = 6,
  peer = 7,
  checkpoint = 8,
  device = 9,
  stopped = 75,
};

/// The status word that result.json carries for an exit code, e.g. "finished", "diverged".
const char* status_word(ExitCode code) noexcept;

class Error : public std::exception {
 public:
  Error(ExitCode code, std::string message) : code_(code), text_(std::move(message)) {}

  ExitCode exit_code() const noexcept { return code_; }
  const char* what() const noexcept override { return text_.c_str(); }

  /// Puts `context` before the message: outermost context first, as it is added on the way up.
  void add_context(const std::string& context) { text_ = context + ": " + text_; }

 private:
  ExitCode code_;
  std::string text_;
};

/// One class per exit code, so that a catch clause or a test can name the kind. All take fmt's arguments.
template <ExitCode Code>
class ErrorOf : public Error {
 public:
  template <class... Args>
  explicit ErrorOf(fmt::format_string<Args...> format, Args&&... args)
      : Error(Code, fmt::format(format, std::forward<Args>(args)...)) {}
};

using BugError = ErrorOf<ExitCode::bug>;                // a mistake of ours
using ConfigError = ErrorOf<ExitCode::usage>;           // command line or configuration
using DataError = ErrorOf<ExitCode::data>;              // training data
using MemoryError = ErrorOf<ExitCode::memory>;          // out of memory, or the plan does not fit
using DivergedError = ErrorOf<ExitCode::diverged>;      // loss or gradient not finite
using FileError = ErrorOf<ExitCode::file_system>;       // full, read-only, I/O error
using PeerError = ErrorOf<ExitCode::peer>;              // a peer was lost or is late
using CheckpointError = ErrorOf<ExitCode::checkpoint>;  // missing, corrupt, of another model
using DeviceError = ErrorOf<ExitCode::device>;          // the device asked for is not there

/// How an exception ends the program, and what it says: for whoever stands at the end of the way up.
struct Failure {
  ExitCode code = ExitCode::bug;
  std::string message;
};
Failure failure_of(const std::exception_ptr& error);

}  // namespace gpipe::base

/// The check pair, for our own mistakes only: what a user can cause gets a proper error instead.
#define GP_CHECK(condition)                                                                                  \
  do {                                                                                                       \
    if (!(condition)) throw ::gpipe::base::BugError("{}:{}: check failed: " #condition, __FILE__, __LINE__); \
  } while (false)
#define GP_CHECK_EQ(a, b)                                                                                      \
  do {                                                                                                         \
    if (const auto& gp_a = (a); !(gp_a == (b)))                                                                \
      throw ::gpipe::base::BugError("{}:{}: " #a " is {}, wanted " #b " = {}", __FILE__, __LINE__, gp_a, (b)); \
  } while (false)
