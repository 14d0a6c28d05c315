// CSV: a sample a line, a number a column, one column (or several) the target. Plain or gzip, RFC 4180 quoting, no line
// ends inside a field.
#include "data/dataset_types.h"
#include "data/lines.h"
#include "data/memory.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>

namespace gpipe::data {

namespace {

enum class Header { automatic, yes, no };
enum class Target { label, value };

struct CsvOptions {
  std::string path;
  std::string delimiter = ",";
  Header header = Header::automatic;
  base::Tree label;
  Target target = Target::label;
  std::vector<std::string> class_names;
  int64_t classes = 0;
  std::vector<int64_t> shape;
  std::vector<int64_t> range;
};

const base::FieldSet<CsvOptions>& csv_fields() {
  static const auto fields = [] {
    base::FieldSet<CsvOptions> f{"csv"};
    f.add("path", &CsvOptions::path).required().help("text file of numbers, plain or gzip");
    f.add("delimiter", &CsvOptions::delimiter).help("one character between the columns");
    f.add("header", &CsvOptions::header, {"auto", "yes", "no"})
        .help("is the first line the names of the columns? auto: yes when a word stands in it");
    f.add("label", &CsvOptions::label)
        .raw_schema(R"({"type": ["string", "integer", "array"]})")
        .help(
            "column of the target, by name or by index from 0; a list of columns for values, [] for none; default the last one");
    f.add("target", &CsvOptions::target, {"class", "value"}).help("what the label column holds: a class, or a number to predict");
    f.add("class_names", &CsvOptions::class_names)
        .help("words of the label column, class 0 first; without: the labels are 0, 1, ...");
    f.add("classes", &CsvOptions::classes).range(0, 1 << 24).help("number of classes; 0: the largest label + 1");
    f.add("shape", &CsvOptions::shape).help("shape of a sample, as in [8, 8, 1]; default a vector of all other columns");
    f.add("range", &CsvOptions::range).help(range_help);
    return f;
  }();
  return fields;
}

std::optional<float> to_number(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  float number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<int64_t> to_index(std::string_view text) {
  int64_t index = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return index;
}

class CsvReader {
 public:
  explicit CsvReader(const CsvOptions& options) : options_(options), lines_(options.path) {}

  Memory read() {
    std::string_view line;
    while (lines_.next(line)) {
      if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
      if (!split_fields(line, options_.delimiter[0], fields_)) fail("a quoted field is not closed");
      if (columns_ == 0 && begin()) continue;
      if (static_cast<int64_t>(fields_.size()) != columns_) {
        fail(fmt::format("{} columns, wanted {} as in the first line", fields_.size(), columns_));
      }
      if (wanted(samples_)) add_sample();
      ++samples_;
    }
    return finish();
  }

 private:
  [[noreturn]] void fail(const std::string& message) const {
    throw base::DataError("{}:{}: {}", options_.path, lines_.number(), message);
  }

  bool wanted(int64_t sample) const {
    return options_.range.empty() || (sample >= options_.range[0] && sample < options_.range[1]);
  }

  /// Looks at the first line: which columns there are. True when it was the header.
  bool begin() {
    columns_ = static_cast<int64_t>(fields_.size());
    // What begins like a number but is none is a fault of the data, not a column's name: a sample must not get lost.
    const bool words = std::any_of(fields_.begin(), fields_.end(), [&](const std::string& field) {
      const auto& names = options_.class_names;
      const size_t first = field.find_first_not_of(" \t");
      const bool numeric = first == std::string::npos || std::strchr("0123456789+-.", field[first]) != nullptr;
      return !numeric && !to_number(field) && std::find(names.begin(), names.end(), field) == names.end();
    });
    const bool header = options_.header == Header::yes || (options_.header == Header::automatic && words);
    is_target_.assign(fields_.size(), false);
    if (options_.label.is_null()) {
      add_target(std::to_string(columns_ - 1), false);  // the last, whatever the columns are called
    } else if (options_.label.is_list()) {
      for (const base::Tree& one : options_.label.items()) add_target(one.text(), header);
    } else {
      add_target(options_.label.text(), header);
    }
    const int64_t inputs = columns_ - static_cast<int64_t>(targets_.size());
    if (inputs == 0) fail("no column is left for the inputs; is the delimiter right?");
    spec_.input = options_.shape.empty() ? tensor::Shape({inputs}) : tensor::Shape(options_.shape);
    if (spec_.input.elements() != inputs) {
      fail(fmt::format("shape {} wants {} columns{}, there are {}", spec_.input, spec_.input.elements(),
                       targets_.empty() ? "" : " beside the target", inputs));
    }
    return header;
  }

  void add_target(const std::string& column, bool header) {
    int64_t index = -1;
    if (header) {
      const auto named = std::find(fields_.begin(), fields_.end(), column);
      if (named != fields_.end()) index = named - fields_.begin();
    }
    if (index < 0) index = to_index(column).value_or(-1);
    if (index < 0 || index >= columns_) {
      fail(fmt::format("no column \"{}\" for the label among {} columns{}", shown(column), columns_,
                       header ? "" : "; the file has no header, so give its index from 0"));
    }
    if (is_target_[static_cast<size_t>(index)]) fail(fmt::format("column \"{}\" is given twice as label", shown(column)));
    is_target_[static_cast<size_t>(index)] = true;
    targets_.push_back(static_cast<size_t>(index));
  }

  float number_at(size_t column) const {
    const std::string& field = fields_[column];
    if (field.empty()) fail(fmt::format("column {} (from 0) is empty, wanted a number", column));
    const auto number = to_number(field);
    if (!number) fail(fmt::format("column {} (from 0) is \"{}\", wanted a number", column, shown(field)));
    if (!std::isfinite(*number)) {
      fail(fmt::format("column {} (from 0) of sample {} is {}, all numbers must be finite", column, samples_, shown(field)));
    }
    return *number;
  }

  void add_sample() {
    for (size_t column = 0; column < fields_.size(); ++column) {
      if (!is_target_[column]) inputs_.push_back(number_at(column));
    }
    if (targets_.empty()) {
      labels_.push_back(0);
      return;
    }
    if (options_.target == Target::value) {
      for (const size_t column : targets_) values_.push_back(number_at(column));
      return;
    }
    const std::string& field = fields_[targets_[0]];
    const auto& names = options_.class_names;
    if (!names.empty()) {
      const auto named = std::find(names.begin(), names.end(), field);
      if (named == names.end()) fail(fmt::format("label \"{}\" is not among class_names", shown(field)));
      labels_.push_back(static_cast<int32_t>(named - names.begin()));
      return;
    }
    const float number = number_at(targets_[0]);
    if (number != std::trunc(number) || std::abs(number) > 1 << 24) {
      fail(fmt::format("label \"{}\" is not a whole number; list the words in class_names, or set target: value", shown(field)));
    }
    labels_.push_back(static_cast<int32_t>(number));
  }

  Memory finish() {
    const Range range = clip_range(options_.range, samples_, options_.path);
    Memory memory;
    memory.name = "CSV " + short_name(options_.path);
    memory.spec = spec_;
    memory.files = {{options_.path, lines_.source().stamp()}};
    memory.inputs = std::move(inputs_);
    if (targets_.empty()) {
      memory.spec.labelled = false;
      memory.spec.classes = 1;
      memory.labels = std::move(labels_);
    } else if (options_.target == Target::value) {
      memory.spec.target = tensor::Shape({static_cast<int64_t>(targets_.size())});
      memory.spec.target_type = tensor::DType::f32;
      memory.values = std::move(values_);
    } else {
      const auto named = static_cast<int64_t>(options_.class_names.size());
      set_labels(memory.spec, labels_, named > 0 ? named : options_.classes, options_.path, range.first);
      memory.spec.class_names = options_.class_names;
      memory.labels = std::move(labels_);
    }
    return memory;
  }

  const CsvOptions& options_;
  LineReader lines_;
  std::vector<std::string> fields_;
  int64_t columns_ = 0;
  std::vector<size_t> targets_;
  std::vector<bool> is_target_;
  train::SampleSpec spec_;
  int64_t samples_ = 0;
  std::vector<float> inputs_;
  std::vector<int32_t> labels_;
  std::vector<float> values_;
};

void check_options(const CsvOptions& options, const base::Tree& arguments, const std::string& path, base::Problems& problems) {
  if (options.delimiter.size() != 1 || options.delimiter == "\"" || options.delimiter == "\n") {
    complain(arguments, path, "delimiter", "wanted one character, as in \",\" or \";\" or \"\\t\"", problems);
  }
  check_shape(options.shape, arguments, path, problems);
  check_range(options.range, arguments, path, problems);
  const auto is_column = [](const base::Tree& tree) { return tree.is_scalar() && !tree.text().empty(); };
  const base::Tree& label = options.label;
  const bool list = label.is_list() && std::all_of(label.items().begin(), label.items().end(), is_column);
  if (!label.is_null() && !is_column(label) && !list)
    complain(arguments, path, "label", "wanted a column's name or index, or a list of them", problems);
  if (list && options.target == Target::label && label.items().size() > 1)
    complain(arguments, path, "label", "a class needs one column, not a list", problems);
}

std::unique_ptr<train::Dataset> open_csv(const base::Tree& arguments, const std::string& path, base::Problems& problems) {
  CsvOptions options;
  const size_t before = problems.errors().size();
  csv_fields().read(arguments, path, options, problems);
  check_options(options, arguments, path, problems);
  if (problems.errors().size() != before) return nullptr;
  return in_memory(CsvReader(options).read());
}

}  // namespace

const train::DatasetType& csv_dataset() {
  static const train::DatasetType type{"csv", "a text file of numbers, a sample a line", open_csv,
                                       [] { return csv_fields().table(); }};
  return type;
}

}  // namespace gpipe::data
