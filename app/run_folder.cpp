#include "app/run_folder.h"

#include "core/train/checkpoint.h"

#include <nlohmann/json.hpp>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <unistd.h>

namespace gpipe::app {
namespace {

constexpr mode_t k_private = 0600;

bool exists(const std::string& path) { return base::kind_of(path).has_value(); }

/// Opened for writing and made when absent; for the owner alone, whatever the umask says.
int open_private(const std::string& file, int flags) {
  const int descriptor = open(file.c_str(), flags | O_CREAT | O_CLOEXEC | O_NOFOLLOW, k_private);
  if (descriptor < 0) base::fail_call("open", file, errno);
  fchmod(descriptor, k_private);
  return descriptor;
}

/// A start that was cut short before its config.yaml left at most the checkpoint of step 0: nothing that could be lost.
bool holds_run(const std::string& path, const std::string& checkpoints) {
  if (exists(path + "/config.yaml") || exists(path + "/metrics.jsonl")) return true;
  const std::vector<int64_t> steps = train::checkpoint_steps(checkpoints);
  return !steps.empty() && steps.back() > 0;
}

/// What a write that was cut short left of one of our files; what else lies in the folder is not ours to touch.
void sweep(const std::string& path) {
  for (const base::Entry& entry : base::list_folder(path))
    for (const char* name :
         {"config.yaml", "plan.json", "profile.json", "metrics.jsonl", "result.json", "trace.json", "timeline.svg"})
      if (entry.kind == base::Entry::Kind::file && entry.name.starts_with(fmt::format(".{}.tmp-", name)))
        base::remove_tree(base::real_files(), path + "/" + entry.name);
}

/// Links and dot-dots are followed once: a link that is set anew does not move a run, and messages show where it lies.
std::string settled(const std::string& path) {
  if (base::kind_of(path) != base::Entry::Kind::link && path.find("..") == std::string::npos) return path;
  return std::filesystem::weakly_canonical(std::filesystem::absolute(path)).string();
}

}  // namespace

RunFolder::RunFolder(std::string path, Mode mode) : path_(std::move(path)) {
  if (path_.empty()) throw base::FileError("output.folder is empty; name a folder for the run");
  path_ = settled(path_);
  if (mode == Mode::resume && !exists(checkpoints()))
    throw base::CheckpointError("{}: there is no run to resume{}", path_,
                                exists(path_ + "/metrics.jsonl") || exists(path_ + "/config.yaml")
                                    ? ": its checkpoints are gone; start anew in another folder by --output"
                                    : "; leave out --resume to start one");
  base::make_folders(base::real_files(), path_);
  lock_ = open_private(path_ + "/.lock", O_RDWR);
  if (flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    close(lock_);
    throw base::FileError("{}: another process runs in this folder; wait for it, or give --output another one", path_);
  }
  if (mode == Mode::fresh && holds_run(path_, checkpoints())) {
    close(lock_);
    throw base::FileError("{}: holds a run already; go on with it by --resume, or give --output another folder", path_);
  }
  sweep(path_);
}

RunFolder::~RunFolder() {
  if (metrics_ >= 0) close(metrics_);
  if (lock_ >= 0) close(lock_);
}

void RunFolder::write(const std::string& name, const std::string& text) const {
  base::atomic_write(base::real_files(), path_ + "/" + name, text);
}

void RunFolder::rewind_metrics(int64_t step) {
  const std::string file = path_ + "/metrics.jsonl";
  last_metrics_ = last_validation_ = nullptr;
  if (!exists(file)) return;
  std::ifstream in(file, std::ios::binary);
  std::string kept;
  for (std::string line; std::getline(in, line) && !in.eof();) {
    nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
    const auto found = json.is_object() ? json.find("step") : json.end();
    if (found == json.end() || !found->is_number_integer() || found->get<int64_t>() > step) break;
    kept += line + "\n";
    if (json.contains("validation_loss")) last_validation_ = json;
    last_metrics_ = std::move(json);
  }
  base::atomic_write(base::real_files(), file, kept);
}

void RunFolder::append_metrics(const nlohmann::json& line) {
  const std::string file = path_ + "/metrics.jsonl";
  if (metrics_ < 0) metrics_ = open_private(file, O_WRONLY | O_APPEND);
  const std::string text = line.dump() + "\n";
  for (size_t done = 0; done < text.size();) {
    const ssize_t written = ::write(metrics_, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) base::fail_call("write", file, errno);
    done += static_cast<size_t>(written);
  }
  if (line.contains("validation_loss")) last_validation_ = line;
  last_metrics_ = line;
}

}  // namespace gpipe::app
