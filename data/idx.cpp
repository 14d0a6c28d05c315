// IDX: the format of MNIST. Two zero bytes, a type, the number of axes, each extent as a big-endian u32, then the
// numbers, big-endian, row-major. Plain or gzip. Source: http://yann.lecun.com/exdb/mnist/.
#include "data/dataset_types.h"
#include "data/memory.h"
#include "data/numbers.h"

#include <optional>

namespace gpipe::data {

namespace {

struct IdxOptions {
  std::string images;
  std::string labels;
  int64_t classes = 0;
  std::vector<int64_t> range;
};

const base::FieldSet<IdxOptions>& idx_fields() {
  static const auto fields = [] {
    base::FieldSet<IdxOptions> f{"idx"};
    f.add("images", &IdxOptions::images).required().help("IDX file of the inputs, plain or gzip");
    f.add("labels", &IdxOptions::labels).help("IDX file of the class labels, plain or gzip; without it there are no targets");
    f.add("classes", &IdxOptions::classes).range(0, 1 << 24).help("number of classes; 0: the largest label + 1");
    f.add("range", &IdxOptions::range).help(range_help);
    return f;
  }();
  return fields;
}

struct Header {
  Stored type = Stored::u8;
  std::vector<int64_t> extents;
  uint64_t bytes = 0;         // of the header
  uint64_t sample_bytes = 0;  // of one sample
  int64_t samples() const { return extents[0]; }
};

std::optional<Stored> type_of(int code) {
  switch (code) {
    case 0x08: return Stored::u8;
    case 0x09: return Stored::i8;
    case 0x0B: return Stored::i16;
    case 0x0C: return Stored::i32;
    case 0x0D: return Stored::f32;
    case 0x0E: return Stored::f64;
    default: return std::nullopt;
  }
}

void need_bytes(const Source& source, size_t got, size_t wanted, uint64_t needed) {
  if (got == wanted) return;
  throw base::DataError("{}: the IDX header needs {} bytes, the file has {}", source.path(), needed, source.position());
}

/// Reads the four bytes that every IDX file begins with: its type and number of axes.
std::pair<Stored, size_t> read_magic(Source& source) {
  const auto magic = read_bytes(source, 4);
  need_bytes(source, magic.size(), 4, 8);  // the shortest header: one axis
  const std::string found = fmt::format("{:02x} {:02x} {:02x} {:02x}", magic[0], magic[1], magic[2], magic[3]);
  if (magic[0] != 0 || magic[1] != 0) {
    const bool turned = magic[2] == 0 && magic[3] == 0 && type_of(magic[1]).has_value();
    throw base::DataError("{}: not an IDX file: byte 0: found {}, wanted 00 00, a type (08..0e) and the number of axes{}",
                          source.path(), found, turned ? "; the header looks little-endian, IDX is big-endian" : "");
  }
  const auto type = type_of(magic[2]);
  if (!type) {
    throw base::DataError("{}: byte 2: unsupported IDX type 0x{:02x}; known are 08 u8, 09 i8, 0b i16, 0c i32, 0d f32, 0e f64",
                          source.path(), magic[2]);
  }
  if (magic[3] == 0 || magic[3] > tensor::Shape::max_rank) {
    throw base::DataError("{}: byte 3: {} axes, wanted 1 to {}", source.path(), magic[3], tensor::Shape::max_rank);
  }
  return {*type, magic[3]};
}

/// Would the file have the right size if its extents were little-endian?
bool looks_little_endian(const Header& header, uint64_t file_size) {
  uint64_t bytes = size_of(header.type);
  for (int64_t extent : header.extents) {
    const uint64_t turned = __builtin_bswap32(static_cast<uint32_t>(extent));
    if (__builtin_mul_overflow(bytes, turned, &bytes)) return false;
  }
  return bytes + header.bytes == file_size;
}

Header read_header(Source& source) {
  const auto [type, rank] = read_magic(source);
  Header header;
  header.type = type;
  header.bytes = 4 + 4 * rank;
  const auto extents = read_bytes(source, 4 * rank);
  need_bytes(source, extents.size(), 4 * rank, header.bytes);
  for (size_t axis = 0; axis < rank; ++axis) { header.extents.push_back(load<uint32_t>(&extents[4 * axis], std::endian::big)); }
  if (header.extents[0] == 0) throw base::DataError("{}: byte 4: no samples: the first extent is 0", source.path());
  uint64_t bytes = size_of(type);
  for (size_t axis = 0; axis < rank; ++axis) {
    if (header.extents[axis] == 0) throw base::DataError("{}: byte {}: extent {} is 0", source.path(), 4 + 4 * axis, axis);
    const auto extent = static_cast<uint64_t>(header.extents[axis]);
    if (__builtin_mul_overflow(bytes, extent, &bytes) || bytes > source.most_bytes()) {
      throw base::DataError("{}: the header promises samples of {} {}, more than the file of {} bytes can hold{}", source.path(),
                            tensor::Shape(header.extents), name_of(type), source.file_size(),
                            looks_little_endian(header, source.file_size()) ? "; its extents look little-endian" : "");
    }
  }
  header.sample_bytes = bytes / static_cast<uint64_t>(header.samples());
  const uint64_t whole = header.bytes + bytes;
  if (!source.compressed() && whole != source.file_size()) {
    throw base::DataError("{}: {} {} and the header need {} bytes, the file has {}", source.path(), tensor::Shape(header.extents),
                          name_of(type), whole, source.file_size());
  }
  return header;
}

/// The numbers of the samples in `range`; the rest is walked over, so that a damaged end is found too.
std::vector<uint8_t> read_samples(Source& source, const Header& header, Range range) {
  const uint64_t whole = header.bytes + static_cast<uint64_t>(header.samples()) * header.sample_bytes;
  source.skip(static_cast<uint64_t>(range.first) * header.sample_bytes);
  auto bytes = read_bytes(source, static_cast<uint64_t>(range.size()) * header.sample_bytes);
  source.skip(static_cast<uint64_t>(header.samples() - range.last) * header.sample_bytes);
  const uint64_t rest = source.position() == whole ? source.skip(UINT64_MAX) : 0;
  if (source.position() != whole || rest > 0) {
    throw base::DataError("{}: the header promises {} bytes, unpacked there are {}", source.path(), whole, source.position());
  }
  return bytes;
}

tensor::Shape sample_shape(const Header& header, const std::string& path) {
  const auto inner = std::span(header.extents).subspan(1);
  if (inner.size() == 2) return {inner[0], inner[1], 1};  // grey images have one channel
  if (static_cast<int>(inner.size()) >= tensor::Shape::max_rank) {
    throw base::DataError("{}: {} axes are too many, wanted up to {}", path, header.extents.size(), tensor::Shape::max_rank);
  }
  return tensor::Shape(inner);
}

/// Those of `range`, which belong to the images of `header`.
void read_labels(const IdxOptions& options, const Header& header, const Range& range, Memory& memory) {
  Source labels(options.labels);
  const Header label_header = read_header(labels);
  if (label_header.extents.size() != 1 || !is_integer(label_header.type)) {
    throw base::DataError("{}: {} of {}: this is a file of images, wanted one axis of integers (labels)", options.labels,
                          tensor::Shape(label_header.extents), name_of(label_header.type));
  }
  if (label_header.samples() != header.samples()) {
    throw base::DataError("{}: {} labels for the {} samples of {}", options.labels, label_header.samples(), header.samples(),
                          options.images);
  }
  memory.files.push_back({options.labels, labels.stamp()});
  memory.labels = to_labels(read_samples(labels, label_header, range), label_header.type, std::endian::big);
  set_labels(memory.spec, memory.labels, options.classes, options.labels, range.first);
}

std::unique_ptr<train::Dataset> open_idx(const base::Tree& arguments, const std::string& path, base::Problems& problems) {
  IdxOptions options;
  const size_t before = problems.errors().size();
  idx_fields().read(arguments, path, options, problems);
  check_range(options.range, arguments, path, problems);
  if (problems.errors().size() != before) return nullptr;

  Source images(options.images);
  const Header header = read_header(images);
  if (header.extents.size() == 1) {
    throw base::DataError(
        "{}: one axis of {} numbers: this is a file of labels, wanted images; are `images` and `labels` swapped?", options.images,
        header.samples());
  }
  const Range range = clip_range(options.range, header.samples(), options.images);

  Memory memory;
  memory.name = "IDX " + short_name(options.images);
  memory.spec.input = sample_shape(header, options.images);
  memory.files = {{options.images, images.stamp()}};
  auto bytes = read_samples(images, header, range);
  if (header.type == Stored::u8) {
    memory.inputs = std::move(bytes);
  } else {
    auto floats = to_floats(bytes, header.type, std::endian::big);
    check_finite(floats, memory.spec.input.elements(), options.images, range.first, "sample");
    memory.inputs = std::move(floats);
  }
  if (options.labels.empty()) {
    memory.spec.labelled = false;
    memory.spec.classes = 1;
    memory.labels.assign(static_cast<size_t>(range.size()), 0);
  } else {
    read_labels(options, header, range, memory);
  }
  return in_memory(std::move(memory));
}

}  // namespace

const train::DatasetType& idx_dataset() {
  static const train::DatasetType type{"idx", "images and labels in IDX files, the format of MNIST", open_idx,
                                       [] { return idx_fields().table(); }};
  return type;
}

}  // namespace gpipe::data
