#include "core/train/manifest.h"

#include "core/base/error.h"
#include "core/train/strict_json.h"

#include <algorithm>
#include <memory>
#include <xxhash.h>

namespace gpipe::train {

namespace {

using nlohmann::json;

constexpr const char* format_name = "gpipe-train checkpoint";
constexpr std::string_view digest_key = ",\n  \"digest\": \"";
constexpr std::string_view digest_end = "\"\n}\n";

std::string hex(XXH128_hash_t hash) { return fmt::format("{:016x}{:016x}", hash.high64, hash.low64); }

/// Both digests in one pass over parts of any size.
class Digester {
 public:
  Digester() {
    GP_CHECK(whole_ != nullptr && block_ != nullptr);
    XXH3_128bits_reset(whole_.get());
    XXH3_64bits_reset(block_.get());
  }
  void add(std::span<const std::byte> bytes) {
    XXH3_128bits_update(whole_.get(), bytes.data(), bytes.size());
    digest_.bytes += bytes.size();
    while (!bytes.empty()) {
      const auto room = static_cast<size_t>(manifest_block_bytes - in_block_);
      const auto part = bytes.first(std::min(room, bytes.size()));
      XXH3_64bits_update(block_.get(), part.data(), part.size());
      in_block_ += part.size();
      bytes = bytes.subspan(part.size());
      if (in_block_ == manifest_block_bytes) end_block();
    }
  }
  FileDigest finish() {
    if (in_block_ > 0) end_block();
    digest_.whole = hex(XXH3_128bits_digest(whole_.get()));
    return std::move(digest_);
  }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  void end_block() {
    digest_.blocks.push_back(fmt::format("{:016x}", XXH3_64bits_digest(block_.get())));
    XXH3_64bits_reset(block_.get());
    in_block_ = 0;
  }

  std::unique_ptr<XXH3_state_t, Free> whole_{XXH3_createState()}, block_{XXH3_createState()};
  uint64_t in_block_ = 0;
  FileDigest digest_;
};

FileDigest read_file_digest(const std::string& name, const json& entry, const std::string& file) {
  if (name.empty() || name.find('/') != std::string::npos || name == "." || name == "..") {
    throw base::CheckpointError("{}: \"{}\" is not the name of a file beside it", file, name);
  }
  return {entry.at("bytes").get<uint64_t>(), entry.at("xxh3_128").get<std::string>(),
          entry.at("blocks").get<std::vector<std::string>>()};
}

}  // namespace

FileDigest digest_of(std::span<const std::span<const std::byte>> parts) {
  Digester digester;
  for (const auto& part : parts) digester.add(part);
  return digester.finish();
}

FileDigest digest_of(std::span<const std::byte> bytes) { return digest_of(std::span(&bytes, 1)); }

std::string write_manifest(const Manifest& manifest) {
  nlohmann::ordered_json files = nlohmann::ordered_json::object();
  for (const auto& [name, digest] : manifest.files) {
    files[name] = {{"bytes", digest.bytes}, {"xxh3_128", digest.whole}, {"blocks", digest.blocks}};
  }
  const nlohmann::ordered_json whole = {{"format", format_name}, {"version", checkpoint_version},       {"run", manifest.run},
                                        {"step", manifest.step}, {"block_bytes", manifest_block_bytes}, {"files", files}};
  std::string text = whole.dump(2);
  text.resize(text.size() - 2);  // "\n}": the digest of all before it becomes the last key
  const std::string digest = hex(XXH3_128bits(text.data(), text.size()));
  return text.append(digest_key).append(digest).append(digest_end);
}

Manifest read_manifest(std::string_view text, const std::string& file) {
  const size_t at = text.rfind(digest_key);
  if (at == std::string_view::npos) {
    throw base::CheckpointError("{}: no digest at the end ({} bytes): the file is cut off or is not a manifest", file,
                                text.size());
  }
  const std::string expected = hex(XXH3_128bits(text.data(), at));
  const std::string_view tail = text.substr(at + digest_key.size());
  if (tail != expected + std::string(digest_end)) {
    throw base::CheckpointError("{}: digest mismatch: its content gives {}, it says {}", file, expected, tail.substr(0, 32));
  }
  const json whole = parse_strict_json(text, file);
  try {
    if (whole.at("format").get<std::string>() != format_name)
      throw base::CheckpointError("{}: not a checkpoint's manifest", file);
    if (const int version = whole.at("version").get<int>(); version != checkpoint_version) {
      throw base::CheckpointError("{}: format version {}, this program reads {}", file, version, checkpoint_version);
    }
    if (whole.at("block_bytes").get<uint64_t>() != manifest_block_bytes) {
      throw base::CheckpointError("{}: blocks of {} bytes, wanted {}", file, whole.at("block_bytes").get<uint64_t>(),
                                  manifest_block_bytes);
    }
    Manifest manifest;
    manifest.run = whole.at("run").get<std::string>();
    manifest.step = whole.at("step").get<int64_t>();
    for (const auto& [name, entry] : whole.at("files").items()) manifest.files[name] = read_file_digest(name, entry, file);
    return manifest;
  } catch (const json::exception& error) { throw base::CheckpointError("{}: {}", file, error.what()); }
}

}  // namespace gpipe::train
