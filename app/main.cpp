// The door: arguments in, one command run, errors told once, an exit code out.
#include "app/catalog.h"
#include "app/cli.h"
#include "app/commands.h"
#include "app/processor.h"
#include "core/base/error.h"
#include "core/device/peers.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fcntl.h>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

namespace {

using namespace gpipe;

using Run = int (*)(const app::Command&, const app::Catalog&);

constexpr std::pair<const char*, Run> commands[] = {
    {"train", app::run_train},       {"eval", app::run_eval},         {"predict", app::run_predict}, {"plan", app::run_plan},
    {"profile", app::run_profile},   {"verify", app::run_verify},     {"check", app::run_check},     {"config", app::run_config},
    {"simulate", app::run_simulate}, {"devices", app::run_devices},   {"version", app::run_version}, {"schema", app::run_schema},
    {"describe", app::run_describe}, {"tokenize", app::run_tokenize}, {"bleu", app::run_bleu},       {"help", app::run_help},
};

/// A program started without standard streams would give their numbers to the first files that it opens, and then print
/// into a checkpoint.
void reopen_closed_streams() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (fcntl(fd, F_GETFD) != -1) continue;
    if (open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY) != fd) std::_Exit(static_cast<int>(base::ExitCode::file_system));
  }
}

void tell(const std::string& message) {
  std::fflush(stdout);  // what was said before comes first where both go to one place
  size_t start = 0;
  while (start <= message.size()) {
    const size_t end = std::min(message.find('\n', start), message.size());
    fmt::print(stderr, "error: {}\n", message.substr(start, end - start));
    start = end + 1;
  }
}

int run(const std::vector<std::string>& arguments) {
  const app::Catalog catalog = app::make_catalog();
  const app::Command command = app::parse_command_line(arguments, catalog);
  if (const int started = device::launched_processes(); started > 1 && command.verb != "train" && command.verb != "devices")
    throw base::ConfigError("{} runs in one process, and a launcher started {}; leave out mpirun", command.verb, started);
  for (const auto& [verb, function] : commands) {
    if (command.verb == verb) return function(command, catalog);
  }
  throw base::BugError("no function runs the command {}", command.verb);
}

}  // namespace

int main(int argc, char** argv) {
  reopen_closed_streams();
  if (const char* missing = app::missing_instruction_set()) {
    std::fprintf(stderr, "error: this program was built for processors with %s, which this one lacks; build it here\n", missing);
    return static_cast<int>(base::ExitCode::device);
  }
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond ulimit -f fails instead
  try {
    const int code = run({argv + 1, argv + argc});
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) throw base::FileError("standard output cannot be written");
    return code;
  } catch (...) {
    const base::Failure failure = base::failure_of(std::current_exception());
    tell(failure.message);
    return static_cast<int>(failure.code);
  }
}
