#include "core/base/files.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <filesystem>
#include <unistd.h>
#include <utility>

namespace gpipe::base {

namespace {

constexpr mode_t file_mode = 0600;
constexpr mode_t folder_mode = 0700;

FileStamp to_stamp(const struct stat& s) {
  return {static_cast<uint64_t>(s.st_size), static_cast<int64_t>(s.st_mtim.tv_sec) * 1'000'000'000 + s.st_mtim.tv_nsec,
          static_cast<uint64_t>(s.st_dev), static_cast<uint64_t>(s.st_ino)};
}

const char* kind_words(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "not a regular file";
}

std::string error_text(int error) {
  std::array<char, 128> buffer{};
  return strerror_r(error, buffer.data(), buffer.size());
}

const char* advice(int error) {
  switch (error) {
    case ENOSPC: return "; the disk is full: free space or choose another folder with --output";
    case EDQUOT: return "; the quota is used up: free space or choose another folder with --output";
    case EFBIG: return "; the file-size limit is reached (ulimit -f)";
    case EROFS: return "; the file system is read-only: choose another folder with --output";
    case EACCES:
    case EPERM: return "; check who owns the folder and its permissions";
    case EIO: return "; the disk reports an error: check it before trusting it again";
    case ENOENT: return "; the parent folder does not exist";
    case EEXIST: return "; the name is taken: remove it or choose another";
    case ENOTDIR: return "; a part of the path is a file";
    case ENAMETOOLONG: return "; choose a shorter name";
    default: return "";
  }
}

class RealFiles final : public FileSystem {
 public:
  int create(const char* path) override {
    const int descriptor = ::open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, file_mode);
    if (descriptor >= 0) ::fchmod(descriptor, file_mode);  // a umask may have taken even the owner's rights
    return descriptor;
  }
  int open_folder(const char* path) override { return ::open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC); }
  int64_t write(int descriptor, std::span<const std::byte> bytes) override {
    return ::write(descriptor, bytes.data(), std::min(bytes.size(), size_t{1} << 30));
  }
  int sync(int descriptor) override { return ::fsync(descriptor); }
  int close(int descriptor) override { return ::close(descriptor); }
  int make_folder(const char* path) override {
    const int made = ::mkdir(path, folder_mode);
    return made == 0 ? ::chmod(path, folder_mode) : made;
  }
  int rename(const char* from, const char* to) override { return ::rename(from, to); }
  int remove_file(const char* path) override { return ::unlink(path); }
  int remove_folder(const char* path) override { return ::rmdir(path); }
};

/// Closes on every path out; close() reports the error where it matters.
class Descriptor {
 public:
  Descriptor(FileSystem& files, int value) : files_(files), value_(value) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (value_ >= 0) files_.close(value_);
  }
  int get() const { return value_; }
  /// EINTR counts as closed: on Linux the descriptor is gone then.
  bool close() {
    const int result = files_.close(std::exchange(value_, -1));
    return result == 0 || errno == EINTR;
  }

 private:
  FileSystem& files_;
  int value_;
};

void write_all(FileSystem& files, int descriptor, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const int64_t written = files.write(descriptor, bytes);
    if (written < 0) {
      if (errno == EINTR) continue;
      fail_call("write", path, errno);
    }
    if (written == 0) fail_call("write", path, EIO);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

}  // namespace

void fail_call(const char* call, const std::string& path, int error) {
  throw FileError("{}: {} failed: {}{}", path, call, error_text(error), advice(error));
}

std::optional<InputFile> InputFile::open(const std::string& path, std::string& reason, Links links) {
  const int extra = links == Links::refuse ? O_NOFOLLOW : 0;
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY | extra);
  if (descriptor < 0) {
    const int error = errno;
    struct stat found {};
    const bool link = ::lstat(path.c_str(), &found) == 0 && S_ISLNK(found.st_mode);
    if (error == ELOOP) {
      reason = links == Links::refuse && link ? "is a symbolic link, which is not allowed here" : "is a loop of symbolic links";
    } else if (error == ENXIO) {
      reason = fmt::format("is {}, not a regular file", kind_words(found.st_mode));
    } else {
      reason = fmt::format("cannot be opened: {}", error_text(error));
    }
    return std::nullopt;
  }
  InputFile file(descriptor, path);
  struct stat found {};
  if (::fstat(descriptor, &found) != 0) {
    reason = fmt::format("cannot be examined: {}", error_text(errno));
    return std::nullopt;
  }
  if (!S_ISREG(found.st_mode)) {
    reason = fmt::format("is {}, not a regular file", kind_words(found.st_mode));
    return std::nullopt;
  }
  if (links == Links::refuse && found.st_nlink != 1) {
    reason = fmt::format("has {} names (hard links), one is allowed", found.st_nlink);
    return std::nullopt;
  }
  file.stamp_ = to_stamp(found);
  file.mode_ = found.st_mode & 07777;
  return file;
}

InputFile::InputFile(InputFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      path_(std::move(other.path_)),
      stamp_(other.stamp_),
      mode_(other.mode_) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(path_, other.path_);
  std::swap(stamp_, other.stamp_);
  std::swap(mode_, other.mode_);
  return *this;
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

size_t InputFile::read_at(uint64_t offset, std::span<std::byte> into) const {
  size_t done = 0;
  while (done < into.size()) {
    const size_t wanted = std::min(into.size() - done, size_t{1} << 30);
    const ssize_t got = ::pread(descriptor_, into.data() + done, wanted, static_cast<off_t>(offset + done));
    if (got < 0) {
      if (errno == EINTR) continue;
      throw FileError("{}: read failed at byte {}: {}{}", path_, offset + done, error_text(errno), advice(errno));
    }
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

std::optional<FileStamp> stamp_of(const std::string& path) {
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0) return std::nullopt;
  return to_stamp(found);
}

FileSystem& real_files() {
  static RealFiles files;
  return files;
}

void write_new_file(FileSystem& files, const std::string& path, std::span<const std::span<const std::byte>> parts) {
  Descriptor file(files, files.create(path.c_str()));
  if (file.get() < 0) fail_call("create", path, errno);
  try {
    for (const auto& part : parts) write_all(files, file.get(), part, path);
    if (files.sync(file.get()) != 0) fail_call("fsync", path, errno);
    if (!file.close()) fail_call("close", path, errno);
  } catch (const FileError&) {
    files.remove_file(path.c_str());
    throw;
  }
}

void write_new_file(FileSystem& files, const std::string& path, std::string_view text) {
  const std::span<const std::byte> part = std::as_bytes(std::span(text));
  write_new_file(files, path, std::span(&part, 1));
}

void atomic_write(FileSystem& files, const std::string& path, std::string_view text) {
  const std::string temporary = temporary_sibling(path);
  write_new_file(files, temporary, text);
  try {
    rename(files, temporary, path);
  } catch (const FileError&) {
    files.remove_file(temporary.c_str());
    throw;
  }
  sync_folder(files, parent_of(path));
}

void make_folder(FileSystem& files, const std::string& path) {
  if (files.make_folder(path.c_str()) != 0) fail_call("mkdir", path, errno);
}

void make_folders(FileSystem& files, const std::string& path) {
  if (path.empty() || path == "." || path == "/") return;
  if (kind_of(path) == Entry::Kind::folder) return;
  make_folders(files, parent_of(path));
  if (files.make_folder(path.c_str()) != 0) {
    const int error = errno;
    struct stat found {};
    if (error == EEXIST && ::stat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode)) return;
    fail_call("mkdir", path, error == EEXIST ? ENOTDIR : error);
  }
  sync_folder(files, parent_of(path));
}

void sync_folder(FileSystem& files, const std::string& path) {
  Descriptor folder(files, files.open_folder(path.c_str()));
  if (folder.get() < 0) fail_call("open", path, errno);
  if (files.sync(folder.get()) != 0) fail_call("fsync", path, errno);
  if (!folder.close()) fail_call("close", path, errno);
}

void rename(FileSystem& files, const std::string& from, const std::string& to) {
  if (files.rename(from.c_str(), to.c_str()) != 0) fail_call("rename", fmt::format("{} to {}", from, to), errno);
}

void remove_tree(FileSystem& files, const std::string& path) {
  if (kind_of(path) != Entry::Kind::folder) {
    if (files.remove_file(path.c_str()) != 0) fail_call("remove", path, errno);
    return;
  }
  for (const Entry& entry : list_folder(path)) remove_tree(files, path + "/" + entry.name);
  if (files.remove_folder(path.c_str()) != 0) fail_call("remove", path, errno);
}

std::optional<Entry::Kind> kind_of(const std::string& path) {
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0) return std::nullopt;
  if (S_ISREG(found.st_mode)) return Entry::Kind::file;
  if (S_ISDIR(found.st_mode)) return Entry::Kind::folder;
  if (S_ISLNK(found.st_mode)) return Entry::Kind::link;
  return Entry::Kind::other;
}

std::vector<Entry> list_folder(const std::string& path) {
  DIR* folder = ::opendir(path.c_str());
  if (folder == nullptr) fail_call("list", path, errno);
  std::vector<Entry> entries;
  errno = 0;
  while (const dirent* found = ::readdir(folder)) {
    const std::string name = found->d_name;
    if (name != "." && name != "..") entries.push_back({name, Entry::Kind::other});
    errno = 0;
  }
  const int error = errno;
  ::closedir(folder);
  if (error != 0) fail_call("list", path, error);
  for (Entry& entry : entries) entry.kind = kind_of(path + "/" + entry.name).value_or(Entry::Kind::other);
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.name < b.name; });
  return entries;
}

std::string parent_of(const std::string& path) {
  const size_t end = path.find_last_not_of('/');
  const size_t slash = path.find_last_of('/', end);
  if (end == std::string::npos) return path.empty() ? "." : "/";
  if (slash == std::string::npos) return ".";
  const size_t last = path.find_last_not_of('/', slash);
  return last == std::string::npos ? "/" : path.substr(0, last + 1);
}

std::string temporary_sibling(const std::string& path) {
  static std::atomic<uint64_t> count{0};  // names only; nothing depends on its value
  const std::string parent = parent_of(path);
  const size_t end = path.find_last_not_of('/');
  const size_t slash = path.find_last_of('/', end);
  const std::string name =
      path.substr(slash == std::string::npos ? 0 : slash + 1, end - (slash == std::string::npos ? 0 : slash + 1) + 1);
  while (true) {  // another process of our number may have left one; creation is exclusive all the same
    std::string sibling = fmt::format("{}/.{}.tmp-{}-{}", parent, name, ::getpid(), count++);
    if (!kind_of(sibling)) return sibling;
  }
}

bool is_temporary_name(const std::string& name) { return name.starts_with('.') && name.find(".tmp-") != std::string::npos; }

void replace_file(FileSystem& files, const std::string& path, std::string_view text) {
  std::error_code ignored;
  const std::filesystem::path real =
      std::filesystem::is_symlink(path, ignored) ? std::filesystem::weakly_canonical(path, ignored) : std::filesystem::path(path);
  const auto kind = kind_of(real.string());
  if (kind && *kind != Entry::Kind::file)
    throw FileError("{}: {}, and would be replaced by a file; give another name", path,
                    *kind == Entry::Kind::folder ? "it is a folder" : "it is no regular file");
  atomic_write(files, real.string(), text);
}

}  // namespace gpipe::base
