// The manifest of a checkpoint: which files belong to it, how long they are, and the checksums of each file and of each
// block of it, so that a message can say where damage lies. It ends in a digest of itself: a manifest that was cut or
// changed anywhere is not believed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gpipe::train {

constexpr int checkpoint_version = 1;
constexpr uint64_t manifest_block_bytes = uint64_t{4} << 20;

struct FileDigest {
  uint64_t bytes = 0;
  std::string whole;                // xxh3-128, hex
  std::vector<std::string> blocks;  // xxh3-64 of each 4 MiB, hex
  bool operator==(const FileDigest&) const = default;
};

/// Digest of a file that consists of `parts`, one after another.
FileDigest digest_of(std::span<const std::span<const std::byte>> parts);
FileDigest digest_of(std::span<const std::byte> bytes);

struct Manifest {
  std::string run;  // id of the run that wrote it
  int64_t step = 0;
  std::map<std::string, FileDigest> files;
};

std::string write_manifest(const Manifest& manifest);
/// CheckpointError naming `file` for anything that write_manifest did not write.
Manifest read_manifest(std::string_view text, const std::string& file);

}  // namespace gpipe::train
