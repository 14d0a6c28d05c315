// A file system that fails on demand: the n-th call with a given errno, or every write cut short and interrupted.
#pragma once

#include "core/base/files.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <map>
#include <string>

namespace gpipe::test {

class FaultFiles final : public base::FileSystem {
 public:
  /// The calls are counted from 1; 0: none fails.
  explicit FaultFiles(int64_t failing_call = 0, int error = ENOSPC) : failing_(failing_call), error_(error) {}

  int64_t calls() const { return calls_; }
  const std::string& failed() const { return failed_; }  // name of the call that failed
  bool short_writes = false;                             // a byte or three at a time, with EINTR before each
  bool failing_forever = false;                          // from the failing call on, every call fails

  int create(const char* path) override { return fails("create") ? -1 : real_.create(path); }
  int open_folder(const char* path) override { return fails("open_folder") ? -1 : real_.open_folder(path); }
  int64_t write(int descriptor, std::span<const std::byte> bytes) override {
    if (fails("write")) return -1;
    if (!short_writes) return real_.write(descriptor, bytes);
    interrupted_ = !interrupted_;
    if (interrupted_) {
      errno = EINTR;
      return -1;
    }
    return real_.write(descriptor, bytes.first(std::min<size_t>(bytes.size(), 1 + static_cast<size_t>(calls_ % 3))));
  }
  int sync(int descriptor) override { return fails("sync") ? -1 : real_.sync(descriptor); }
  int close(int descriptor) override {
    const bool failing = fails("close");
    const int closed = real_.close(descriptor);  // a failed close has closed all the same
    if (failing) errno = error_;
    return failing ? -1 : closed;
  }
  int make_folder(const char* path) override { return fails("make_folder") ? -1 : real_.make_folder(path); }
  int rename(const char* from, const char* to) override { return fails("rename") ? -1 : real_.rename(from, to); }
  int remove_file(const char* path) override { return fails("remove_file") ? -1 : real_.remove_file(path); }
  int remove_folder(const char* path) override { return fails("remove_folder") ? -1 : real_.remove_folder(path); }

 private:
  bool fails(const char* call) {
    ++calls_;
    if (failing_ == 0 || (failing_forever ? calls_ < failing_ : calls_ != failing_)) return false;
    if (failed_.empty()) failed_ = call;
    errno = error_;
    return true;
  }

  base::FileSystem& real_ = base::real_files();
  int64_t calls_ = 0, failing_ = 0;
  int error_ = 0;
  bool interrupted_ = false;
  std::string failed_;
};

}  // namespace gpipe::test
