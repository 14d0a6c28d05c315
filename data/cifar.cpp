// CIFAR-10 and CIFAR-100 in their binary form: records of one label byte (CIFAR-100: coarse, then fine) and 3,072 pixels,
// three planes of 32x32 (red, green, blue). Held as [32, 32, 3] bytes. Plain or gzip.
// Source: https://www.cs.toronto.edu/~kriz/cifar.html.
#include "data/dataset_types.h"
#include "data/memory.h"

#include <algorithm>
#include <set>

namespace gpipe::data {

namespace {

constexpr size_t side = 32, channels = 3, pixels = side * side, image_bytes = pixels * channels;

enum class Labels { fine, coarse };

struct CifarOptions {
  int64_t variant = 10;
  std::vector<std::string> files;
  Labels labels = Labels::fine;
  std::vector<int64_t> only;
  std::vector<int64_t> range;
};

const base::FieldSet<CifarOptions>& cifar_fields() {
  static const auto fields = [] {
    base::FieldSet<CifarOptions> f{"cifar"};
    f.add("variant", &CifarOptions::variant).range(10, 100).help("10 or 100: the number of classes, and the form of a record");
    f.add("files", &CifarOptions::files).required().help("binary files, as in [data_batch_1.bin, data_batch_2.bin]");
    f.add("labels", &CifarOptions::labels, {"fine", "coarse"}).help("CIFAR-100: its 100 classes, or its 20 superclasses");
    f.add("only", &CifarOptions::only).help("classes to keep, as in [0, 1, 8]: they become 0, 1, 2; none: all");
    f.add("range", &CifarOptions::range).help(range_help);
    return f;
  }();
  return fields;
}

class CifarReader {
 public:
  explicit CifarReader(const CifarOptions& options)
      : options_(options),
        label_bytes_(options.variant == 10 ? 1 : 2),
        label_at_(options.variant == 100 && options.labels == Labels::fine ? 1 : 0),
        classes_(options.variant == 10            ? 10
                 : options.labels == Labels::fine ? 100
                                                  : 20) {}

  Memory read() {
    for (const std::string& file : options_.files) read_file(file);
    const Range range = clip_range(options_.range, records_, fmt::format("CIFAR-{} files", options_.variant));
    GP_CHECK(!options_.only.empty() || static_cast<int64_t>(labels_.size()) == range.size());
    if (labels_.empty()) throw base::DataError("{}: no image is of a class in `only`", options_.files[0]);
    Memory memory;
    memory.name = fmt::format("CIFAR-{} {}{}", options_.variant, short_name(options_.files[0]),
                              options_.files.size() > 1 ? fmt::format(" and {} more", options_.files.size() - 1) : "");
    memory.spec.input = tensor::Shape({side, side, channels});
    memory.spec.classes = options_.only.empty() ? classes_ : static_cast<int64_t>(options_.only.size());
    memory.inputs = std::move(images_);
    memory.labels = std::move(labels_);
    memory.files = std::move(files_);
    return memory;
  }

 private:
  void read_file(const std::string& path) {
    Source source(path);
    const size_t record = label_bytes_ + image_bytes;
    if (!source.compressed() && source.file_size() % record != 0) complain_remainder(path, source.file_size(), record);
    if (source.file_size() == 0) throw base::DataError("{}: the file is empty", path);
    if (!source.compressed()) images_.reserve(images_.size() + wanted_of(source.file_size() / record) * image_bytes);
    std::vector<uint8_t> buffer(record);
    for (int64_t index = 0;; ++index) {
      const size_t got = source.read(std::as_writable_bytes(std::span(buffer)));
      if (got == 0) break;
      if (got < record) complain_remainder(path, source.position(), record);
      const uint8_t label = buffer[label_at_];
      if (label >= classes_) {
        throw base::DataError("{}: record {} (byte {}): label {} is not in [0, {}); is this CIFAR-{}?", path, index,
                              static_cast<uint64_t>(index) * record + label_at_, label, classes_, options_.variant);
      }
      if (wanted(records_++)) add(std::span(buffer).subspan(label_bytes_), label);
    }
    files_.push_back({path, source.stamp()});
  }

  [[noreturn]] void complain_remainder(const std::string& path, uint64_t bytes, size_t record) const {
    throw base::DataError("{}: {} bytes are {} records of {} and {} bytes over; is this CIFAR-{}?", path, bytes, bytes / record,
                          record, bytes % record, options_.variant);
  }

  bool wanted(int64_t record) const {
    return options_.range.empty() || (record >= options_.range[0] && record < options_.range[1]);
  }
  size_t wanted_of(uint64_t records) const {
    if (options_.range.empty()) return records;
    const auto first = static_cast<uint64_t>(std::max<int64_t>(options_.range[0] - records_, 0));
    const auto last = static_cast<uint64_t>(std::max<int64_t>(options_.range[1] - records_, 0));
    return std::min(last, records) - std::min(first, records);
  }

  /// Planes to pixels: activations are channels-last everywhere.
  void add(std::span<const uint8_t> planes, int64_t label) {
    if (const auto& only = options_.only; !only.empty()) {
      label = std::find(only.begin(), only.end(), label) - only.begin();
      if (label == static_cast<int64_t>(only.size())) return;
    }
    for (size_t pixel = 0; pixel < pixels; ++pixel) {
      for (size_t c = 0; c < channels; ++c) images_.push_back(planes[c * pixels + pixel]);
    }
    labels_.push_back(static_cast<int32_t>(label));
  }

  const CifarOptions& options_;
  size_t label_bytes_, label_at_;
  int64_t classes_;
  int64_t records_ = 0;
  std::vector<uint8_t> images_;
  std::vector<int32_t> labels_;
  std::vector<Stamped> files_;
};

std::unique_ptr<train::Dataset> open_cifar(const base::Tree& arguments, const std::string& path, base::Problems& problems) {
  CifarOptions options;
  const size_t before = problems.errors().size();
  cifar_fields().read(arguments, path, options, problems);
  check_range(options.range, arguments, path, problems);
  if (options.variant != 10 && options.variant != 100) complain(arguments, path, "variant", "wanted 10 or 100", problems);
  if (arguments.find("files") != nullptr && options.files.empty())
    complain(arguments, path, "files", "the list is empty", problems);
  const int64_t classes = options.variant == 10 ? 10 : options.labels == Labels::fine ? 100 : 20;
  const std::set<int64_t> distinct(options.only.begin(), options.only.end());
  if (options.only.size() == 1 || distinct.size() != options.only.size() ||
      (!distinct.empty() && (*distinct.begin() < 0 || *distinct.rbegin() >= classes)))
    complain(arguments, path, "only", fmt::format("wanted at least two different classes from 0 to {}", classes - 1), problems);
  if (problems.errors().size() != before) return nullptr;
  return in_memory(CifarReader(options).read());
}

}  // namespace

const train::DatasetType& cifar_dataset() {
  static const train::DatasetType type{"cifar", "CIFAR-10 or CIFAR-100 in binary files", open_cifar,
                                       [] { return cifar_fields().table(); }};
  return type;
}

}  // namespace gpipe::data
