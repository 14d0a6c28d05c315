// A folder of pictures: each sub-folder is a class, in the order of the names; each JPEG or PNG in it is a sample. Other
// files are passed over. Pictures are decoded and resized once, when the set is opened, or each time with `cache: false`.
#include "data/dataset_types.h"
#include "data/image.h"
#include "data/memory.h"

#include <algorithm>
#include <cctype>
#include <cstring>

namespace gpipe::data {

namespace {

enum class Channels { rgb, grey };

struct FolderOptions {
  std::string path;
  std::vector<int64_t> size;
  Channels channels = Channels::rgb;
  bool cache = true;
  std::vector<int64_t> range;
};

const base::FieldSet<FolderOptions>& folder_fields() {
  static const auto fields = [] {
    base::FieldSet<FolderOptions> f{"image_folder"};
    f.add("path", &FolderOptions::path).required().help("folder with a sub-folder of JPEG or PNG files for each class");
    f.add("size", &FolderOptions::size).required().at_least(1).at_most(8192).unit("pixels").help("[height, width] of a sample");
    f.add("channels", &FolderOptions::channels, {"rgb", "grey"}).help("colour or grey samples; pictures are converted");
    f.add("cache", &FolderOptions::cache).help("keep the resized pictures in memory; false: decode each time one is used");
    f.add("range", &FolderOptions::range).help(range_help);
    return f;
  }();
  return fields;
}

struct Listing {
  std::vector<std::string> class_names;
  std::vector<std::string> paths;
  std::vector<int32_t> labels;
};

bool is_picture(const std::string& name) {
  std::string lower = name;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return !name.starts_with('.') && (lower.ends_with(".jpg") || lower.ends_with(".jpeg") || lower.ends_with(".png"));
}

bool is_folder(const std::string& path) { return base::kind_of(path + "/.") == base::Entry::Kind::folder; }

std::vector<base::Entry> list(const std::string& path) {
  try {
    return base::list_folder(path);
  } catch (const base::FileError& error) { throw base::DataError("{}", error.what()); }
}

Listing list_pictures(const std::string& path) {
  if (!is_folder(path))
    throw base::DataError("{}: {}", path, base::kind_of(path) ? "is not a folder" : "there is no such folder");
  Listing listing;
  for (const base::Entry& entry : list(path)) {
    const std::string folder = path + "/" + entry.name;
    if (entry.name.starts_with('.') || !is_folder(folder)) continue;
    const auto label = static_cast<int32_t>(listing.class_names.size());
    const size_t before = listing.paths.size();
    for (const base::Entry& file : list(folder)) {
      if (!is_picture(file.name)) continue;
      listing.paths.push_back(folder + "/" + file.name);
      listing.labels.push_back(label);
    }
    if (listing.paths.size() == before) throw base::DataError("{}: no JPEG or PNG file in the folder of a class", folder);
    listing.class_names.push_back(entry.name);
  }
  if (listing.class_names.size() < 2) {
    throw base::DataError("{}: {} sub-folders with pictures, wanted one for each class, at least 2", path,
                          listing.class_names.size());
  }
  return listing;
}

/// One picture as a sample of the set.
void load_picture(const std::string& path, const tensor::Shape& shape, std::span<uint8_t> pixels, base::FileStamp* stamp) {
  constexpr uint64_t most_bytes = uint64_t{256} << 20;
  std::string reason;
  const auto file = base::InputFile::open(path, reason);
  if (!file) throw base::DataError("{}: {}", path, reason);
  if (file->size() > most_bytes) throw base::DataError("{}: {} bytes, the limit is {}", path, file->size(), most_bytes);
  std::vector<uint8_t> bytes(file->size());
  bytes.resize(file->read_at(0, std::as_writable_bytes(std::span(bytes))));
  resize_image(decode_image(bytes, shape[2], path), shape[0], shape[1], pixels);
  if (stamp != nullptr) *stamp = file->stamp();
}

/// Decodes when asked. Holds paths and labels alone.
class LazyFolder final : public train::Dataset {
 public:
  explicit LazyFolder(Memory memory) : memory_(std::move(memory)) {}

  const train::SampleSpec& spec() const override { return memory_.spec; }
  int64_t size() const override { return static_cast<int64_t>(memory_.labels.size()); }
  void read(int64_t index, std::span<std::byte> bytes, std::span<std::byte> target) const override {
    const std::span<float> input = train::as_floats(bytes);
    const auto at = static_cast<size_t>(index);
    std::vector<uint8_t> pixels(input.size());
    load_picture(memory_.files.at(at).path, memory_.spec.input, pixels, nullptr);
    std::copy(pixels.begin(), pixels.end(), input.begin());
    std::memcpy(target.data(), &memory_.labels[at], sizeof(int32_t));
  }
  void recheck() const override { recheck_files(memory_.files); }
  std::string describe() const override { return data::describe(memory_.name, size(), memory_.spec); }

 private:
  Memory memory_;
};

std::unique_ptr<train::Dataset> open_folder(const base::Tree& arguments, const std::string& path, base::Problems& problems) {
  FolderOptions options;
  const size_t before = problems.errors().size();
  folder_fields().read(arguments, path, options, problems);
  check_range(options.range, arguments, path, problems);
  if (problems.errors().size() == before && options.size.size() != 2) {
    complain(arguments, path, "size", "wanted [height, width], as in [32, 32]", problems);
  }
  if (problems.errors().size() != before) return nullptr;

  const Listing listing = list_pictures(options.path);
  const Range range = clip_range(options.range, static_cast<int64_t>(listing.paths.size()), options.path);
  Memory memory;
  memory.name = "images " + short_name(options.path);
  memory.spec.input = {options.size[0], options.size[1], options.channels == Channels::grey ? 1 : 3};
  memory.spec.classes = static_cast<int64_t>(listing.class_names.size());
  memory.spec.class_names = listing.class_names;
  std::vector<uint8_t> pixels;
  const auto elements = static_cast<size_t>(memory.spec.input.elements());
  if (options.cache) pixels.resize(static_cast<size_t>(range.size()) * elements);
  for (int64_t i = range.first; i < range.last; ++i) {
    const std::string& file = listing.paths[static_cast<size_t>(i)];
    memory.labels.push_back(listing.labels[static_cast<size_t>(i)]);
    Stamped stamped{file, {}};
    if (options.cache) {
      const auto place = static_cast<size_t>(i - range.first) * elements;
      load_picture(file, memory.spec.input, std::span(pixels).subspan(place, elements), &stamped.stamp);
    } else if (const auto stamp = base::stamp_of(file)) {
      stamped.stamp = *stamp;
    }
    memory.files.push_back(std::move(stamped));
  }
  if (!options.cache) return std::make_unique<LazyFolder>(std::move(memory));
  memory.inputs = std::move(pixels);
  return in_memory(std::move(memory));
}

}  // namespace

const train::DatasetType& image_folder_dataset() {
  static const train::DatasetType type{"image_folder", "JPEG and PNG files, a sub-folder a class", open_folder,
                                       [] { return folder_fields().table(); }};
  return type;
}

}  // namespace gpipe::data
