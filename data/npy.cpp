// NPY: inputs [N, ...] in one file of NumPy's, classes [N] or values [N, ...] in another. Plain or gzip. Big-endian numbers
// are converted; Fortran order is refused, with what to do.
#include "data/dataset_types.h"
#include "data/memory.h"
#include "data/npy_header.h"

namespace gpipe::data {

namespace {

enum class Target { label, value };

struct NpyOptions {
  std::string inputs;
  std::string labels;
  Target target = Target::label;
  int64_t classes = 0;
  std::vector<int64_t> shape;
  std::vector<int64_t> range;
};

const base::FieldSet<NpyOptions>& npy_fields() {
  static const auto fields = [] {
    base::FieldSet<NpyOptions> f{"npy"};
    f.add("inputs", &NpyOptions::inputs).required().help("NPY file of the inputs, [N, ...]");
    f.add("labels", &NpyOptions::labels).required().help("NPY file of the targets: whole numbers [N], or values [N, ...]");
    f.add("target", &NpyOptions::target, {"class", "value"}).help("what the labels are: classes, or numbers to predict");
    f.add("classes", &NpyOptions::classes).range(0, 1 << 24).help("number of classes; 0: the largest label + 1");
    f.add("shape", &NpyOptions::shape).help("shape of a sample, as in [28, 28, 1]; default as in the file");
    f.add("range", &NpyOptions::range).help(range_help);
    return f;
  }();
  return fields;
}

struct Array {
  explicit Array(const std::string& path) : source(path), header(read_npy_header(source)) {
    if (header.shape.empty()) throw base::DataError("{}: a single number, wanted an array of samples", path);
    if (header.shape[0] == 0) throw base::DataError("{}: no samples: the first extent is 0", path);
    if (header.element_count == 0) throw base::DataError("{}: shape {} has no elements", path, tensor::Shape(header.shape));
  }

  int64_t samples() const { return header.shape[0]; }
  tensor::Shape sample_shape() const {
    if (header.shape.size() == 1) return {1};
    return tensor::Shape(header.shape).sample();
  }

  std::vector<uint8_t> read(Range range) {
    const uint64_t all = header.element_count * size_of(header.type), row = all / static_cast<uint64_t>(samples());
    source.skip(static_cast<uint64_t>(range.first) * row);
    auto bytes = read_bytes(source, static_cast<uint64_t>(range.size()) * row);
    source.skip(static_cast<uint64_t>(samples() - range.last) * row);
    const uint64_t rest = source.position() == header.bytes + all ? source.skip(UINT64_MAX) : 0;
    if (source.position() != header.bytes + all || rest > 0) {
      throw base::DataError("{}: the header promises {} bytes, unpacked there are {}", source.path(), header.bytes + all,
                            source.position());
    }
    return bytes;
  }

  Source source;
  NpyHeader header;
};

void set_targets(Memory& memory, const NpyOptions& options, Array& labels, Range range) {
  const auto bytes = labels.read(range);
  if (options.target == Target::value) {
    memory.spec.target = labels.sample_shape();
    memory.spec.target_type = tensor::DType::f32;
    memory.values = to_floats(bytes, labels.header.type, labels.header.order);
    check_finite(memory.values, memory.spec.target.elements(), options.labels, range.first, "target");
    return;
  }
  if (!is_integer(labels.header.type) || labels.sample_shape().elements() != 1) {
    throw base::DataError("{}: {} of {}; classes are whole numbers [N]; for values set target: value", options.labels,
                          tensor::Shape(labels.header.shape), name_of(labels.header.type));
  }
  memory.labels = to_labels(bytes, labels.header.type, labels.header.order);
  set_labels(memory.spec, memory.labels, options.classes, options.labels, range.first);
}

std::unique_ptr<train::Dataset> open_npy(const base::Tree& arguments, const std::string& path, base::Problems& problems) {
  NpyOptions options;
  const size_t before = problems.errors().size();
  npy_fields().read(arguments, path, options, problems);
  check_range(options.range, arguments, path, problems);
  check_shape(options.shape, arguments, path, problems);
  if (problems.errors().size() != before) return nullptr;

  Array inputs(options.inputs), labels(options.labels);
  if (inputs.samples() != labels.samples()) {
    throw base::DataError("{}: {} labels for the {} samples of {}", options.labels, labels.samples(), inputs.samples(),
                          options.inputs);
  }
  const Range range = clip_range(options.range, inputs.samples(), options.inputs);
  Memory memory;
  memory.name = "NPY " + short_name(options.inputs);
  memory.files = {{options.inputs, inputs.source.stamp()}, {options.labels, labels.source.stamp()}};
  memory.spec.input = options.shape.empty() ? inputs.sample_shape() : tensor::Shape(options.shape);
  if (memory.spec.input.elements() != inputs.sample_shape().elements()) {
    throw base::DataError("{}: samples of {} cannot be taken as {}", options.inputs, inputs.sample_shape(), memory.spec.input);
  }
  auto bytes = inputs.read(range);
  if (inputs.header.type == Stored::u8) {
    memory.inputs = std::move(bytes);
  } else {
    auto floats = to_floats(bytes, inputs.header.type, inputs.header.order);
    check_finite(floats, memory.spec.input.elements(), options.inputs, range.first, "sample");
    memory.inputs = std::move(floats);
  }
  set_targets(memory, options, labels, range);
  return in_memory(std::move(memory));
}

}  // namespace

const train::DatasetType& npy_dataset() {
  static const train::DatasetType type{"npy", "inputs and targets in NumPy's NPY files", open_npy,
                                       [] { return npy_fields().table(); }};
  return type;
}

}  // namespace gpipe::data
