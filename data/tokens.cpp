// tokens: text that was made into tokens before, in the files of nanoGPT (uint16 or uint32, nothing else) and llm.c (a header of
// 256 int32, then uint16 for GPT-2's tokens or uint32 for Llama 3's), in windows. Several files are one row, in their order. The
// files are read as needed, and stay on the disk.
#include "data/dataset_types.h"
#include "data/memory.h"
#include "data/token_windows.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace gpipe::data {

namespace {

enum class Type { uint16, uint32 };

struct TokensOptions : WindowOptions {
  std::vector<std::string> files;
  Type type = Type::uint16;
  int64_t classes = 0;
};

const base::FieldSet<TokensOptions>& tokens_fields() {
  static const auto fields = [] {
    base::FieldSet<TokensOptions> f{"tokens"};
    f.add("files", &TokensOptions::files).required().help("files of tokens in binary form, one row in this order");
    f.add("type", &TokensOptions::type, {"uint16", "uint32"}).help("of the tokens in files without a header of llm.c");
    f.add("classes", &TokensOptions::classes)
        .range(0, 1 << 24)
        .help("size of the vocabulary; 0: the largest token of the files + 1");
    add_window_fields(f);
    return f;
  }();
  return fields;
}

constexpr size_t header_words = 256;
constexpr int32_t most_tokens = 1 << 24;  // of a vocabulary

/// The forms with a header, told apart by their first two words (llm.c, dev/data/data_common.py).
struct Form {
  int32_t magic, version;
  size_t width;
};
constexpr Form forms[] = {{20240520, 1, 2}, {20240801, 7, 4}};

class TokenFile {
 public:
  TokenFile(base::InputFile file, size_t raw_width) : file_(std::move(file)), width_(raw_width) {
    std::array<int32_t, 3> header{};
    const auto bytes = std::as_writable_bytes(std::span(header));
    const bool has_words = file_.read_at(0, bytes) == bytes.size();
    const auto* form = std::find_if(std::begin(forms), std::end(forms), [&](const Form& f) { return f.magic == header[0]; });
    if (has_words && form != std::end(forms)) {
      read_header(header, *form);
    } else {
      if (file_.size() == 0) throw base::DataError("{}: the file is empty, wanted tokens", file_.path());
      if (file_.size() % width_ != 0)
        throw base::DataError("{}: {} bytes are no whole number of tokens of {} bytes", file_.path(), file_.size(), width_);
      size_ = static_cast<int64_t>(file_.size() / width_);
    }
  }

  int64_t size() const { return size_; }
  const base::InputFile& file() const { return file_; }

  /// Tokens [first, first + out.size()) of this file.
  void read(int64_t first, std::span<int32_t> out) const {
    const uint64_t at = begin_ + static_cast<uint64_t>(first) * width_;
    // The packed tokens go to the back of `out`, so that unpacking forwards never overwrites what is still to be read.
    const size_t bytes = out.size() * width_;
    auto* packed = reinterpret_cast<std::byte*>(out.data()) + (out.size_bytes() - bytes);
    if (file_.read_at(at, {packed, bytes}) != bytes)
      throw base::DataError("{}: the file ends before byte {}; it became shorter while the run used it", file_.path(),
                            at + bytes);
    unpack_tokens(reinterpret_cast<const uint8_t*>(packed), width_, out);
  }

 private:
  void read_header(const std::array<int32_t, 3>& header, const Form& form) {
    if (header[1] != form.version)
      throw base::DataError("{}: version {} of llm.c's tokens, wanted {}", file_.path(), header[1], form.version);
    width_ = form.width;
    begin_ = header_words * sizeof(int32_t);
    size_ = header[2];
    const uint64_t wanted = begin_ + static_cast<uint64_t>(std::max<int64_t>(size_, 0)) * width_;
    if (size_ <= 0 || file_.size() != wanted) {
      throw base::DataError("{}: its header says {} tokens of {} bytes, which makes {} bytes; the file has {}", file_.path(),
                            size_, width_, wanted, file_.size());
    }
  }

  base::InputFile file_;
  size_t width_;
  uint64_t begin_ = 0;
  int64_t size_ = 0;
};

class FileTokens final : public TokenRow {
 public:
  explicit FileTokens(const TokensOptions& options) {
    for (const std::string& path : options.files) {
      std::string reason;
      auto file = base::InputFile::open(path, reason);
      if (!file) throw base::DataError("{}: {}", path, reason);
      files_.emplace_back(std::move(*file), options.type == Type::uint16 ? 2 : 4);
      begins_.push_back(size_);
      size_ += files_.back().size();
    }
  }

  int64_t size() const override { return size_; }
  void read(int64_t first, std::span<int32_t> out) const override {
    GP_CHECK(first >= 0 && first + static_cast<int64_t>(out.size()) <= size_);
    auto file = static_cast<size_t>(std::upper_bound(begins_.begin(), begins_.end(), first) - begins_.begin()) - 1;
    while (!out.empty()) {
      const int64_t inside = first - begins_[file];
      const auto count = std::min(out.size(), static_cast<size_t>(files_[file].size() - inside));
      files_[file].read(inside, out.first(count));
      out = out.subspan(count);
      first += static_cast<int64_t>(count);
      ++file;
    }
  }

  /// The vocabulary: `wanted`, or from the tokens where that is 0. DataError for the first token outside.
  int64_t vocabulary(int64_t wanted) const {
    const auto limit = static_cast<uint32_t>(wanted > 0 ? wanted : most_tokens);
    std::vector<int32_t> chunk(size_t{1} << 16);
    uint32_t largest = 0;
    for (const TokenFile& file : files_) {
      for (int64_t at = 0; at < file.size(); at += static_cast<int64_t>(chunk.size())) {
        const auto part = std::span(chunk).first(static_cast<size_t>(std::min<int64_t>(file.size() - at, 1 << 16)));
        file.read(at, part);
        for (size_t i = 0; i < part.size(); ++i) {
          const auto token = static_cast<uint32_t>(part[i]);
          largest = std::max(largest, token);
          if (token >= limit) {
            throw base::DataError("{}: token {} at index {} is not in [0, {}); are type and classes right?", file.file().path(),
                                  token, at + static_cast<int64_t>(i), limit);
          }
        }
      }
    }
    return wanted > 0 ? wanted : std::max<int64_t>(int64_t{largest} + 1, 2);
  }

  std::vector<Stamped> stamps() const {
    std::vector<Stamped> all;
    for (const TokenFile& file : files_) all.push_back({file.file().path(), file.file().stamp()});
    return all;
  }

 private:
  std::vector<TokenFile> files_;
  std::vector<int64_t> begins_;  // index of each file's first token
  int64_t size_ = 0;
};

std::unique_ptr<train::Dataset> open_tokens(const base::Tree& arguments, const std::string& path, base::Problems& problems) {
  TokensOptions options;
  const size_t before = problems.errors().size();
  tokens_fields().read(arguments, path, options, problems);
  check_windows(options, arguments, path, problems);
  if (problems.errors().size() == before && options.files.empty())
    complain(arguments, path, "files", "wanted at least one file", problems);
  if (problems.errors().size() != before) return nullptr;
  auto row = std::make_unique<FileTokens>(options);
  Windows windows;
  windows.name = "tokens " + short_name(options.files.front());
  if (options.files.size() > 1) windows.name += fmt::format(" and {} more", options.files.size() - 1);
  windows.vocabulary = row->vocabulary(options.classes);
  windows.files = row->stamps();
  windows.row = std::move(row);
  return token_windows(std::move(windows), options);
}

}  // namespace

const train::DatasetType& tokens_dataset() {
  static const train::DatasetType type{"tokens", "text that was made into tokens before", open_tokens,
                                       [] { return tokens_fields().table(); }};
  return type;
}

}  // namespace gpipe::data
