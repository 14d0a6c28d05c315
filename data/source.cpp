#include "data/source.h"

#include <algorithm>
#include <array>
#include <limits>
#include <zlib.h>

namespace gpipe::data {

namespace {
constexpr size_t chunk_bytes = size_t{1} << 16;
constexpr uint64_t deflate_limit = 1032;
}  // namespace

struct Source::State {
  explicit State(base::InputFile opened) : file(std::move(opened)) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (packed) inflateEnd(&stream);
  }

  base::InputFile file;
  bool packed = false;
  bool finished = false;       // the gzip stream has ended
  uint64_t file_position = 0;  // next byte to read from the file
  uint64_t position = 0;
  z_stream stream{};
  std::array<std::byte, chunk_bytes> chunk{};

  size_t inflate_into(std::span<std::byte> into);
  void expect_end();
};

Source::Source(const std::string& path) {
  std::string reason;
  auto file = base::InputFile::open(path, reason);
  if (!file) throw base::DataError("{}: {}", path, reason);
  state_ = std::make_unique<State>(std::move(*file));
  std::array<std::byte, 2> magic{};
  const bool full = state_->file.read_at(0, magic) == 2;
  if (full && magic[0] == std::byte{0x1f} && magic[1] == std::byte{0x8b}) {
    constexpr int gzip_only = 15 + 16;
    if (inflateInit2(&state_->stream, gzip_only) != Z_OK) throw base::MemoryError("{}: no memory for zlib", path);
    state_->packed = true;
  }
}

Source::Source(Source&&) noexcept = default;
Source& Source::operator=(Source&&) noexcept = default;
Source::~Source() = default;

size_t Source::State::inflate_into(std::span<std::byte> into) {
  size_t done = 0;
  while (done < into.size() && !finished) {
    if (stream.avail_in == 0) {
      const size_t got = file.read_at(file_position, chunk);
      if (got == 0) {
        throw base::DataError("{}: the gzip stream is cut off: the file ends at byte {}, after {} unpacked bytes", file.path(),
                              file_position, position + done);
      }
      file_position += got;
      stream.next_in = reinterpret_cast<Bytef*>(chunk.data());
      stream.avail_in = static_cast<uInt>(got);
    }
    const auto room = static_cast<uInt>(std::min<size_t>(into.size() - done, size_t{1} << 30));
    stream.next_out = reinterpret_cast<Bytef*>(into.data() + done);
    stream.avail_out = room;
    const int result = inflate(&stream, Z_NO_FLUSH);
    done += room - stream.avail_out;
    if (result == Z_STREAM_END) {
      finished = true;
      expect_end();
    } else if (result == Z_MEM_ERROR) {
      throw base::MemoryError("{}: no memory for zlib", file.path());
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      throw base::DataError("{}: the gzip stream is damaged near byte {}: {}", file.path(), file_position - stream.avail_in,
                            stream.msg != nullptr ? stream.msg : "unexpected end of a block");
    }
  }
  return done;
}

/// One gzip member a file: whatever follows it would be read by some programs and dropped by others.
void Source::State::expect_end() {
  const uint64_t end = file_position - stream.avail_in;
  if (end != file.size()) {
    throw base::DataError("{}: {} bytes follow the gzip stream, which ends at byte {}; wanted one stream and nothing more",
                          file.path(), file.size() - end, end);
  }
}

size_t Source::read(std::span<std::byte> into) {
  State& s = *state_;
  size_t done = 0;
  if (s.packed) {
    done = s.inflate_into(into);
  } else {
    done = s.file.read_at(s.file_position, into);
    s.file_position += done;
  }
  s.position += done;
  return done;
}

uint64_t Source::skip(uint64_t bytes) {
  State& s = *state_;
  if (!s.packed) {
    const uint64_t done = std::min(bytes, s.file.size() - std::min(s.file_position, s.file.size()));
    s.file_position += done;
    s.position += done;
    return done;
  }
  std::vector<std::byte> sink(chunk_bytes);
  uint64_t done = 0;
  while (done < bytes) {
    const auto wanted = static_cast<size_t>(std::min<uint64_t>(sink.size(), bytes - done));
    const size_t got = read(std::span(sink).first(wanted));
    done += got;
    if (got < wanted) break;
  }
  return done;
}

uint64_t Source::position() const { return state_->position; }
bool Source::compressed() const { return state_->packed; }
uint64_t Source::file_size() const { return state_->file.size(); }
const std::string& Source::path() const { return state_->file.path(); }
const base::FileStamp& Source::stamp() const { return state_->file.stamp(); }

uint64_t Source::most_bytes() const {
  if (!compressed()) return file_size();
  return file_size() > std::numeric_limits<uint64_t>::max() / deflate_limit ? std::numeric_limits<uint64_t>::max()
                                                                            : file_size() * deflate_limit;
}

std::vector<uint8_t> read_bytes(Source& source, uint64_t count) {
  std::vector<uint8_t> bytes;
  uint64_t step = source.compressed() ? std::min<uint64_t>(count, uint64_t{1} << 22) : count;
  while (bytes.size() < count) {
    const size_t before = bytes.size();
    const auto wanted = static_cast<size_t>(std::min<uint64_t>(step, count - before));
    bytes.resize(before + wanted);
    const size_t got = source.read(std::as_writable_bytes(std::span(bytes).subspan(before)));
    if (got < wanted) {
      bytes.resize(before + got);
      break;
    }
    step = bytes.size();
  }
  return bytes;
}

void recheck_files(std::span<const Stamped> files) {
  for (const Stamped& file : files) {
    const auto now = base::stamp_of(file.path);
    if (!now) throw base::DataError("{}: the file is gone since the run began", file.path);
    if (*now == file.stamp) continue;
    if (now->size != file.stamp.size) {
      throw base::DataError("{}: the file changed while the run used it: {} bytes when opened, {} now", file.path,
                            file.stamp.size, now->size);
    }
    throw base::DataError("{}: the file was {} while the run used it; data must stay the same for the whole run", file.path,
                          now->inode != file.stamp.inode ? "replaced" : "written to");
  }
}

std::string short_name(const std::string& path) {
  const size_t last = path.find_last_of('/');
  if (last == std::string::npos || last == 0) return path;
  const size_t before = path.find_last_of('/', last - 1);
  return before == std::string::npos ? path : path.substr(before + 1);
}

}  // namespace gpipe::data
