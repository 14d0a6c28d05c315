// OutputFile: a new file for what a command writes, or standard output. A failure to write is told by close().
#pragma once

#include "core/base/files.h"

#include <cerrno>
#include <cstdio>
#include <string>
#include <string_view>

namespace gpipe::app {

class OutputFile {
 public:
  /// "" is standard output. FileError where the name is taken.
  explicit OutputFile(std::string path) : path_(std::move(path)) {
    if (path_.empty()) return;
    file_ = std::fopen(path_.c_str(), "wex");
    if (file_ == nullptr) base::fail_call("open", path_, errno);
  }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile() {
    if (file_ != stdout) std::fclose(file_);
  }

  void write(std::string_view text) { std::fwrite(text.data(), 1, text.size(), file_); }
  /// FileError when something was not written.
  void close() {
    const bool written = std::fflush(file_) == 0 && std::ferror(file_) == 0;
    if (!written) base::fail_call("write", path_.empty() ? "standard output" : path_, errno);
  }

 private:
  std::string path_;
  std::FILE* file_ = stdout;
};

}  // namespace gpipe::app
