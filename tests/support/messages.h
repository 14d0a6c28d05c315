// What an error says, for tests of messages.
#pragma once

#include "core/base/error.h"

#include <doctest/doctest.h>

#include <functional>
#include <string>

namespace gpipe::test {

/// The words of the error that `work` ends with, which has this exit code; "" and a failed check without one.
inline std::string message_of(const std::function<void()>& work, base::ExitCode code) {
  try {
    work();
  } catch (const base::Error& error) {
    CHECK(error.exit_code() == code);
    return error.what();
  }
  FAIL_CHECK("nothing was thrown");
  return "";
}

}  // namespace gpipe::test
