// The program as a child process: started with limits and an environment of its own, watched, signalled, killed.
#pragma once

#include "tests/app/run_program.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <functional>
#include <string>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace gpipe::test {

/// Nothing here takes this long; what does, hangs.
constexpr std::chrono::seconds k_patience{120};

/// Does `happened` become true before patience ends? It is asked again and again.
template <class Condition>
bool wait_until(Condition happened, std::chrono::steady_clock::duration patience = k_patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!happened()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

class Child {
 public:
  /// `in_child` runs between fork and exec: limits, masks, closed streams. Streams go to .stdout and .stderr of `folder`.
  /// `launcher`: the command, whole path first, that starts the program.
  Child(const std::filesystem::path& folder, const std::vector<std::string>& arguments,
        const std::function<void()>& in_child = {}, const std::vector<std::string>& launcher = {})
      : folder_(folder) {
    std::vector<std::string> words = launcher;
    words.push_back(program().string());
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const std::string out = (folder / ".stdout").string(), err = (folder / ".stderr").string();
    pid_ = fork();
    if (pid_ != 0) return;
    const int flags = O_WRONLY | O_CREAT | O_TRUNC;
    const bool ready = chdir(folder.c_str()) == 0 && dup2(open(out.c_str(), flags, 0600), 1) == 1 &&
                       dup2(open(err.c_str(), flags, 0600), 2) == 2;
    if (in_child) in_child();
    if (ready) execv(argv[0], argv.data());
    _exit(127);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (!running()) return;
    signal(SIGKILL);
    wait();
  }

  bool running() {
    if (!ended_ && waitpid(pid_, &status_, WNOHANG) == pid_) ended_ = true;
    return !ended_;
  }
  void signal(int number) const { kill(pid_, number); }
  /// To the last of those that it started itself.
  void signal_last_child(int number) const {
    const std::string id = std::to_string(pid_);
    std::ifstream children("/proc/" + id + "/task/" + id + "/children");
    pid_t last = -1;
    for (pid_t child = -1; children >> child;) last = child;
    if (last > 0) kill(last, number);
  }
  /// Has it been sent a signal that none of its threads has taken yet?
  bool has_pending_signals() const {
    std::ifstream status("/proc/" + std::to_string(pid_) + "/status");
    for (std::string word; status >> word;) {
      if (word == "ShdPnd:") return status >> word && word.find_first_not_of('0') != std::string::npos;
    }
    return false;
  }
  /// The exit status as a shell gives it: 128 + n after a signal n; -1 when it does not end.
  int wait() {
    if (!wait_until([&] { return !running(); })) return -1;
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  }
  Outcome outcome() {
    const int code = wait();
    return {code, content_of(folder_ / ".stdout"), content_of(folder_ / ".stderr")};
  }

 private:
  std::filesystem::path folder_;
  pid_t pid_ = -1;
  int status_ = 0;
  bool ended_ = false;
};

inline Outcome run_child(const TempFolder& folder, const std::vector<std::string>& arguments,
                         const std::function<void()>& in_child = {}) {
  return Child(folder.path(), arguments, in_child).outcome();
}

inline void limit(int resource, rlim_t value) {
  const rlimit both{value, value};
  setrlimit(static_cast<__rlimit_resource>(resource), &both);
}

inline mode_t mode_of(const std::filesystem::path& path) {
  struct stat found {};
  return lstat(path.c_str(), &found) == 0 ? found.st_mode & 07777 : 0;
}

}  // namespace gpipe::test
