#include "app/run_folder.h"

#include <nlohmann/json.hpp>
#include <sys/file.h>

#include <cerrno>
#include <fcntl.h>
#include <fstream>
#include <sstream>
#include <unistd.h>

namespace gpipe::app {
namespace {

bool exists(const std::string& path) { return base::kind_of(path).has_value(); }

}  // namespace

RunFolder::RunFolder(std::string path, Mode mode) : path_(std::move(path)) {
  if (path_.empty()) throw base::FileError("output.folder is empty; name a folder for the run");
  if (mode == Mode::resume && !exists(path_))
    throw base::CheckpointError("{}: there is no run to resume; leave out --resume to start one", path_);
  base::make_folders(base::real_files(), path_);
  const std::string lock = path_ + "/.lock";
  lock_ = open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (lock_ < 0) base::fail_call("open", lock, errno);
  if (flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    close(lock_);
    throw base::FileError("{}: another process runs in this folder; wait for it, or give --output another one", path_);
  }
  if (mode == Mode::fresh && (exists(path_ + "/config.yaml") || exists(path_ + "/metrics.jsonl") || exists(checkpoints()))) {
    close(lock_);
    throw base::FileError("{}: holds a run already; go on with it by --resume, or give --output another folder", path_);
  }
}

RunFolder::~RunFolder() {
  if (metrics_ >= 0) close(metrics_);
  if (lock_ >= 0) close(lock_);
}

void RunFolder::write(const std::string& name, const std::string& text) const {
  base::atomic_write(base::real_files(), path_ + "/" + name, text);
}

void RunFolder::rewind_metrics(int64_t step) const {
  const std::string file = path_ + "/metrics.jsonl";
  if (!exists(file)) return;
  std::ifstream in(file, std::ios::binary);
  std::string kept;
  for (std::string line; std::getline(in, line) && !in.eof();) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (json.is_discarded() || !json.contains("step") || json["step"].get<int64_t>() > step) break;
    kept += line + "\n";
  }
  base::atomic_write(base::real_files(), file, kept);
}

void RunFolder::append_metrics(const nlohmann::json& line) {
  const std::string file = path_ + "/metrics.jsonl";
  if (metrics_ < 0) metrics_ = open(file.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (metrics_ < 0) base::fail_call("open", file, errno);
  const std::string text = line.dump() + "\n";
  for (size_t done = 0; done < text.size();) {
    const ssize_t written = ::write(metrics_, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) base::fail_call("write", file, errno);
    done += static_cast<size_t>(written);
  }
}

}  // namespace gpipe::app
