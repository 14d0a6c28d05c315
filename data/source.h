// Source: the bytes of one data file from front to back, plain or gzip (told by its first two bytes, not its name).
//
// Faults of the file are DataErrors that name it; a failing disk is a FileError with the offset. One thread.
#pragma once

#include "core/base/files.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace gpipe::data {

class Source {
 public:
  explicit Source(const std::string& path);
  Source(Source&&) noexcept;
  Source& operator=(Source&&) noexcept;
  ~Source();

  /// Fills `into`; fewer bytes only at the end. A damaged or cut gzip stream, or anything after it, is a DataError.
  size_t read(std::span<std::byte> into);
  /// Goes on without keeping the bytes; says how many there were.
  uint64_t skip(uint64_t bytes);
  uint64_t position() const;  // in the unpacked bytes

  bool compressed() const;
  uint64_t file_size() const;  // as it lies on the disk
  /// No content can be longer than this: the size of a plain file, 1,032 times that of a gzip file (deflate's limit).
  uint64_t most_bytes() const;
  const std::string& path() const;
  const base::FileStamp& stamp() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The next `count` bytes, or fewer at the end. For a gzip file memory grows with what really comes out, so that a header
/// that promises too much costs nothing.
std::vector<uint8_t> read_bytes(Source& source, uint64_t count);

/// A file and the version of it that was read; what a data set rechecks once an epoch.
struct Stamped {
  std::string path;
  base::FileStamp stamp;
};

/// DataError when one of the files was changed, replaced or removed since.
void recheck_files(std::span<const Stamped> files);

/// The last two parts of a path: enough to tell files apart in a line of text.
std::string short_name(const std::string& path);

}  // namespace gpipe::data
