// Files: reading that never blocks, and the one seam through which durable things are written.
//
// InputFile opens regular files only, so that neither a pipe nor a device can hold the program. FileSystem is a thin
// face of the system calls that change something; checkpoints and result files are written through it, so that a test
// can let any single call fail. The functions below it add what is always needed: whole writes, names in messages,
// fsync in the right order. Stateless; any thread may call.
#pragma once

#include "core/base/error.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gpipe::base {

/// What tells one version of a file from another.
struct FileStamp {
  uint64_t size = 0;
  int64_t modified_ns = 0;
  uint64_t device = 0, inode = 0;
  bool operator==(const FileStamp&) const = default;
};

enum class Links { follow, refuse };  // refuse: a symbolic link, or a file that has a second name

/// A regular file open for reading.
class InputFile {
 public:
  /// Nothing, and the reason in words, where there is no readable regular file.
  static std::optional<InputFile> open(const std::string& path, std::string& reason, Links links = Links::follow);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  ~InputFile();

  const std::string& path() const { return path_; }
  const FileStamp& stamp() const { return stamp_; }  // when it was opened
  uint64_t size() const { return stamp_.size; }
  uint32_t mode() const { return mode_; }
  /// Fills `into` from `offset`; fewer bytes only at the end of the file. FileError with the offset when the disk fails.
  size_t read_at(uint64_t offset, std::span<std::byte> into) const;

 private:
  InputFile(int descriptor, std::string path) : descriptor_(descriptor), path_(std::move(path)) {}
  int descriptor_ = -1;
  std::string path_;
  FileStamp stamp_;
  uint32_t mode_ = 0;
};

/// The stamp of the file that `path` names now; nothing when there is none.
std::optional<FileStamp> stamp_of(const std::string& path);

/// The system calls that change something. Each returns what the call returns (-1 and errno on failure).
class FileSystem {
 public:
  FileSystem() = default;
  FileSystem(const FileSystem&) = delete;
  FileSystem& operator=(const FileSystem&) = delete;
  virtual ~FileSystem() = default;

  virtual int create(const char* path) = 0;       // exclusive, for writing, mode 0600; a descriptor
  virtual int open_folder(const char* path) = 0;  // for fsync; a descriptor
  virtual int64_t write(int descriptor, std::span<const std::byte> bytes) = 0;
  virtual int sync(int descriptor) = 0;
  virtual int close(int descriptor) = 0;
  virtual int make_folder(const char* path) = 0;  // mode 0700
  virtual int rename(const char* from, const char* to) = 0;
  virtual int remove_file(const char* path) = 0;
  virtual int remove_folder(const char* path) = 0;  // an empty one
};

/// The real one.
FileSystem& real_files();

/// Creates `path` and writes all of it, retried over short writes and signals, then fsync: FileError names the call that
/// failed. What was begun is removed. A failed fsync is never retried: the kernel may have dropped the pages.
void write_new_file(FileSystem& files, const std::string& path, std::span<const std::span<const std::byte>> parts);
void write_new_file(FileSystem& files, const std::string& path, std::string_view text);

/// Replaces `path` as a whole: a temporary sibling, fsync, rename, fsync of the parent. Readers see the old or the new.
void atomic_write(FileSystem& files, const std::string& path, std::string_view text);

void make_folder(FileSystem& files, const std::string& path);   // FileError if it exists
void make_folders(FileSystem& files, const std::string& path);  // with parents, durably; existing ones are fine
void sync_folder(FileSystem& files, const std::string& path);
void rename(FileSystem& files, const std::string& from, const std::string& to);
/// A folder and all below it; links are removed, never followed. FileError on the first failure.
void remove_tree(FileSystem& files, const std::string& path);

/// Names in a folder, sorted; `kind` as lstat sees it.
struct Entry {
  enum class Kind { file, folder, link, other };
  std::string name;
  Kind kind = Kind::other;
};
std::vector<Entry> list_folder(const std::string& path);  // FileError
/// The same, link or not; nothing when there is no such name.
std::optional<Entry::Kind> kind_of(const std::string& path);

/// atomic_write over a regular file, the one that a link leads to, or no file at all: anything else (a device, a pipe, a
/// folder) is a FileError, as it would be replaced. For files that the user names.
void replace_file(FileSystem& files, const std::string& path, std::string_view text);

std::string parent_of(const std::string& path);  // "." where there is none
/// A sibling's name that nothing has now: ".NAME.tmp-<pid>-<n>".
std::string temporary_sibling(const std::string& path);
bool is_temporary_name(const std::string& name);

/// FileError for the errno of a failed call, with what to try.
[[noreturn]] void fail_call(const char* call, const std::string& path, int error);

}  // namespace gpipe::base
