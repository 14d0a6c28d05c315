// safetensors: named tensors in a file that torch and others open. Eight bytes little-endian: the length of a JSON header;
// the header: name -> {dtype, shape, data_offsets}; then the bytes, without gaps.
// Source: https://huggingface.co/docs/safetensors. Reading is strict: whatever the format forbids is a CheckpointError.
#pragma once

#include "core/base/error.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gpipe::train {

enum class StoredType { f32, f64, f16, bf16, i8, u8, i16, i32, i64 };

size_t size_of(StoredType type);
const char* name_of(StoredType type);  // "F32"

/// A view: whoever made it says how long the bytes live.
struct NamedTensor {
  std::string name;
  std::vector<int64_t> shape;
  StoredType dtype = StoredType::f32;
  std::span<const std::byte> bytes;
};

std::string shape_text(std::span<const int64_t> shape);  // "[3, 3]"

using Metadata = std::map<std::string, std::string>;

/// A file about to be written: the first part is the header, which this owns, the others are the tensors' own bytes.
struct SafetensorsImage {
  std::string name;  // of the file
  std::string header;
  std::vector<std::span<const std::byte>> tensors;
  /// Valid while this stays where it is.
  std::vector<std::span<const std::byte>> parts() const;
};

/// Wider types come first, so that every tensor is aligned; otherwise the order given.
SafetensorsImage make_safetensors(std::string file_name, std::span<const NamedTensor> tensors, const Metadata& metadata);

/// `<stem>.safetensors`, or where that is over `shard_bytes`: `<stem>-00001-of-0000N.safetensors` and the index text that
/// Hugging Face's loaders read as `<stem>.safetensors.index.json`. A tensor is never cut.
struct SafetensorsSet {
  std::vector<SafetensorsImage> files;
  std::string index;  // empty when there is one file
};
SafetensorsSet make_sharded(const std::string& stem, std::span<const NamedTensor> tensors, const Metadata& metadata,
                            uint64_t shard_bytes);

/// A file that was read. Owns the bytes; the tensors are views of them.
class Safetensors {
 public:
  Safetensors() = default;
  Safetensors(Safetensors&&) = default;  // the bytes stay where they are, so views stay valid
  Safetensors& operator=(Safetensors&&) = default;
  Safetensors(const Safetensors&) = delete;
  Safetensors& operator=(const Safetensors&) = delete;
  ~Safetensors() = default;

  /// `file` is for messages. CheckpointError with the place and the reason.
  static Safetensors parse(std::vector<std::byte> bytes, const std::string& file);
  /// Reads and parses a regular file.
  static Safetensors read(const std::string& path);

  const std::vector<NamedTensor>& tensors() const { return tensors_; }  // in the order of their bytes
  const NamedTensor* find(const std::string& name) const;
  const Metadata& metadata() const { return metadata_; }

 private:
  std::vector<std::byte> bytes_;
  std::vector<NamedTensor> tensors_;
  Metadata metadata_;
};

/// "a pickle file", "a zip archive (as torch.save writes)"...; empty for nothing we know.
std::string foreign_kind(std::span<const std::byte> first_bytes);

}  // namespace gpipe::train
