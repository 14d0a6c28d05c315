#include "core/train/safetensors.h"

#include "core/base/files.h"
#include "core/train/strict_json.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>

static_assert(std::endian::native == std::endian::little, "tensors are stored as memory holds them: little-endian");

namespace gpipe::train {

namespace {

using nlohmann::json;

constexpr uint64_t header_cap = 100'000'000;  // the format's own limit

struct TypeRow {
  StoredType type;
  const char* name;
  size_t size;
};
constexpr std::array<TypeRow, 9> types{{{StoredType::f32, "F32", 4},
                                        {StoredType::f64, "F64", 8},
                                        {StoredType::f16, "F16", 2},
                                        {StoredType::bf16, "BF16", 2},
                                        {StoredType::i8, "I8", 1},
                                        {StoredType::u8, "U8", 1},
                                        {StoredType::i16, "I16", 2},
                                        {StoredType::i32, "I32", 4},
                                        {StoredType::i64, "I64", 8}}};

const TypeRow& row_of(StoredType type) { return types[static_cast<size_t>(type)]; }

std::optional<StoredType> type_named(const std::string& name) {
  for (const TypeRow& row : types) {
    if (name == row.name) return row.type;
  }
  return std::nullopt;
}

struct Placed {
  NamedTensor tensor;
  uint64_t begin = 0, end = 0;
};

/// An unsigned whole number, or nothing: JSON also has -1, 1.5 and 1e3.
std::optional<uint64_t> to_unsigned(const json& value) {
  if (!value.is_number_unsigned()) return std::nullopt;
  return value.get<uint64_t>();
}

Placed read_entry(const std::string& name, const json& entry, uint64_t data_bytes, const std::string& file) {
  const auto fail = [&](const std::string& message) { throw base::CheckpointError("{}: tensor {}: {}", file, name, message); };
  if (!entry.is_object() || entry.size() != 3 || !entry.contains("dtype") || !entry.contains("shape") ||
      !entry.contains("data_offsets")) {
    fail("wanted exactly dtype, shape and data_offsets");
  }
  Placed placed;
  placed.tensor.name = name;
  const json& dtype = entry["dtype"];
  const auto type = dtype.is_string() ? type_named(dtype.get<std::string>()) : std::nullopt;
  if (!type) fail(fmt::format("unknown dtype {}", dtype.dump()));
  placed.tensor.dtype = *type;
  const json& shape = entry["shape"];
  if (!shape.is_array()) fail("shape is not a list");
  uint64_t bytes = size_of(*type);
  for (const json& value : shape) {
    const auto extent = to_unsigned(value);
    if (!extent) fail(fmt::format("the shape {} is not one of whole numbers", shape.dump()));
    if (*extent == 0) fail(fmt::format("the shape {} has no elements", shape.dump()));
    if (__builtin_mul_overflow(bytes, *extent, &bytes) || bytes > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      fail(fmt::format("the shape {} overflows", shape.dump()));
    }
    placed.tensor.shape.push_back(static_cast<int64_t>(*extent));
  }
  const json& offsets = entry["data_offsets"];
  const auto begin = offsets.is_array() && offsets.size() == 2 ? to_unsigned(offsets[0]) : std::nullopt;
  const auto end = offsets.is_array() && offsets.size() == 2 ? to_unsigned(offsets[1]) : std::nullopt;
  if (!begin || !end || *begin > *end) fail(fmt::format("data_offsets {} is not [begin, end]", offsets.dump()));
  if (*end > data_bytes) fail(fmt::format("ends at byte {} of the data, which has {}", *end, data_bytes));
  if (*end - *begin != bytes) {
    fail(fmt::format("{} {} needs {} bytes, its offsets span {}", name_of(*type), shape.dump(), bytes, *end - *begin));
  }
  placed.begin = *begin;
  placed.end = *end;
  return placed;
}

Metadata read_metadata(const json& value, const std::string& file) {
  Metadata metadata;
  if (!value.is_object()) throw base::CheckpointError("{}: __metadata__ is not a map", file);
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) throw base::CheckpointError("{}: __metadata__ {} is not text", file, key);
    metadata[key] = text.get<std::string>();
  }
  return metadata;
}

/// Length of the header, each way in which it can be wrong with its own words.
uint64_t header_length(std::span<const std::byte> bytes, const std::string& file) {
  const std::string kind = foreign_kind(bytes);
  if (!kind.empty()) throw base::CheckpointError("{}: this is {}, wanted safetensors", file, kind);
  if (bytes.size() < 8) throw base::CheckpointError("{}: {} bytes, a safetensors file has at least 8", file, bytes.size());
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  if (length == 0) throw base::CheckpointError("{}: the header length is 0; this is no safetensors file", file);
  if (length > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    throw base::CheckpointError("{}: the header length {} is negative when signed; this is no safetensors file", file, length);
  }
  if (length > header_cap) {
    throw base::CheckpointError("{}: the header length {} is over the limit of {}", file, length, header_cap);
  }
  if (length > bytes.size() - 8) {
    throw base::CheckpointError("{}: the header length {} goes past the file of {} bytes", file, length, bytes.size());
  }
  return length;
}

}  // namespace

size_t size_of(StoredType type) { return row_of(type).size; }
const char* name_of(StoredType type) { return row_of(type).name; }

std::string shape_text(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

std::vector<std::span<const std::byte>> SafetensorsImage::parts() const {
  std::vector<std::span<const std::byte>> all{std::as_bytes(std::span(header))};
  all.insert(all.end(), tensors.begin(), tensors.end());
  return all;
}

SafetensorsImage make_safetensors(std::string file_name, std::span<const NamedTensor> tensors, const Metadata& metadata) {
  std::vector<const NamedTensor*> order;
  for (const NamedTensor& tensor : tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(),
                   [](const NamedTensor* a, const NamedTensor* b) { return size_of(a->dtype) > size_of(b->dtype); });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  SafetensorsImage image;
  image.name = std::move(file_name);
  uint64_t offset = 0;
  for (const NamedTensor* tensor : order) {
    uint64_t elements = 1;
    for (const int64_t extent : tensor->shape) elements *= static_cast<uint64_t>(extent);
    GP_CHECK_EQ(tensor->bytes.size(), elements * size_of(tensor->dtype));
    GP_CHECK(!header.contains(tensor->name) && tensor->name != "__metadata__");
    header[tensor->name] = {
        {"dtype", name_of(tensor->dtype)}, {"shape", tensor->shape}, {"data_offsets", {offset, offset + tensor->bytes.size()}}};
    offset += tensor->bytes.size();
    image.tensors.push_back(tensor->bytes);
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data begins aligned
  const uint64_t length = text.size();
  image.header.assign(reinterpret_cast<const char*>(&length), sizeof length);
  image.header += text;
  return image;
}

SafetensorsSet make_sharded(const std::string& stem, std::span<const NamedTensor> tensors, const Metadata& metadata,
                            uint64_t shard_bytes) {
  std::vector<std::vector<NamedTensor>> shards(1);
  uint64_t filled = 0, total = 0;
  for (const NamedTensor& tensor : tensors) {
    if (!shards.back().empty() && filled + tensor.bytes.size() > shard_bytes) {
      shards.emplace_back();
      filled = 0;
    }
    shards.back().push_back(tensor);
    filled += tensor.bytes.size();
    total += tensor.bytes.size();
  }
  SafetensorsSet set;
  if (shards.size() == 1) {
    set.files.push_back(make_safetensors(stem + ".safetensors", tensors, metadata));
    return set;
  }
  nlohmann::ordered_json index = {{"metadata", {{"total_size", total}}}, {"weight_map", nlohmann::ordered_json::object()}};
  for (size_t i = 0; i < shards.size(); ++i) {
    std::string name = fmt::format("{}-{:05}-of-{:05}.safetensors", stem, i + 1, shards.size());
    for (const NamedTensor& tensor : shards[i]) index["weight_map"][tensor.name] = name;
    set.files.push_back(make_safetensors(std::move(name), shards[i], metadata));
  }
  set.index = index.dump(2) + "\n";
  return set;
}

Safetensors Safetensors::parse(std::vector<std::byte> bytes, const std::string& file) {
  const uint64_t length = header_length(bytes, file);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, length);
  if (text.front() != '{') throw base::CheckpointError("{}: the header does not begin with a brace", file);
  const json header = parse_strict_json(text, file);
  const uint64_t data_bytes = bytes.size() - 8 - length;
  Safetensors result;
  std::vector<Placed> all;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      result.metadata_ = read_metadata(entry, file);
    } else {
      all.push_back(read_entry(name, entry, data_bytes, file));
    }
  }
  std::sort(all.begin(), all.end(), [](const Placed& a, const Placed& b) { return a.begin < b.begin; });
  result.bytes_ = std::move(bytes);
  const std::span<const std::byte> data = std::span(result.bytes_).subspan(8 + length);
  uint64_t reached = 0;
  for (Placed& placed : all) {
    if (placed.begin != reached) {
      throw base::CheckpointError("{}: tensor {} begins at byte {} of the data, wanted {}: {}", file, placed.tensor.name,
                                  placed.begin, reached, placed.begin < reached ? "it overlaps another" : "there is a gap");
    }
    reached = placed.end;
    placed.tensor.bytes = data.subspan(placed.begin, placed.end - placed.begin);
    result.tensors_.push_back(std::move(placed.tensor));
  }
  if (reached != data_bytes) {
    throw base::CheckpointError("{}: the tensors end at byte {} of the data, which has {}", file, reached, data_bytes);
  }
  return result;
}

Safetensors Safetensors::read(const std::string& path) {
  std::string reason;
  const auto file = base::InputFile::open(path, reason);
  if (!file) throw base::CheckpointError("{}: {}", path, reason);
  std::vector<std::byte> bytes(file->size());
  bytes.resize(file->read_at(0, bytes));
  return parse(std::move(bytes), path);
}

const NamedTensor* Safetensors::find(const std::string& name) const {
  const auto found = std::find_if(tensors_.begin(), tensors_.end(), [&](const NamedTensor& t) { return t.name == name; });
  return found == tensors_.end() ? nullptr : &*found;
}

std::string foreign_kind(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), std::min<size_t>(bytes.size(), 16));
  if (text.starts_with("PK\x03\x04")) return "a zip archive (as torch.save and numpy.savez write)";
  if (text.starts_with("\x89HDF\r\n\x1a\n")) return "an HDF5 file";
  if (text.starts_with("\x93NUMPY")) return "an NPY file";
  if (text.starts_with("\x1f\x8b")) return "a gzip file";
  if (text.size() >= 2 && text[0] == '\x80' && text[1] >= 2 && text[1] <= 5 && (text.size() < 9 || text[8] != '{')) {
    return "a pickle file (as old torch.save writes), which is never opened: it can hold code";
  }
  return "";
}

}  // namespace gpipe::train
