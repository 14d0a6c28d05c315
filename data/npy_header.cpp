#include "data/npy_header.h"

#include "core/tensor/tensor.h"

#include <charconv>
#include <optional>
#include <string>
#include <string_view>

namespace gpipe::data {

namespace {

constexpr size_t header_cap = size_t{1} << 16;

/// The three values of the header's Python dictionary, as text.
struct Dictionary {
  std::string descr, fortran_order, shape;
};

/// Walks a Python literal that is a dictionary of these three keys; anything else is refused.
class DictionaryReader {
 public:
  DictionaryReader(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  Dictionary read() {
    Dictionary all;
    expect('{');
    while (!take('}')) {
      const std::string key = quoted();
      expect(':');
      std::string& value = key == "descr" ? all.descr : key == "fortran_order" ? all.fortran_order : all.shape;
      if (key != "descr" && key != "fortran_order" && key != "shape") fail(fmt::format("unknown key '{}'", key));
      if (!value.empty()) fail(fmt::format("the key '{}' stands there twice", key));
      value = one_value();
      if (!take(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (at_ != text_.size()) fail("something follows the dictionary");
    if (all.descr.empty() || all.fortran_order.empty() || all.shape.empty()) fail("descr, fortran_order or shape is missing");
    return all;
  }

 private:
  [[noreturn]] void fail(const std::string& reason) const {
    throw base::DataError("{}: the NPY header is damaged at its character {}: {}", file_, at_, reason);
  }
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }
  bool take(char c) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail(fmt::format("wanted '{}'", c));
  }
  std::string quoted() {
    skip_space();
    const char quote = at_ < text_.size() ? text_[at_] : ' ';
    if (quote != '\'' && quote != '"') fail("wanted a quoted word");
    const size_t end = text_.find(quote, ++at_);
    if (end == std::string_view::npos) fail("a quote is not closed");
    std::string word(text_.substr(at_, end - at_));
    at_ = end + 1;
    return word;
  }
  /// A quoted word without its quotes, or a word, a tuple or a list up to its closing bracket.
  std::string one_value() {
    skip_space();
    if (at_ < text_.size() && (text_[at_] == '\'' || text_[at_] == '"')) return quoted();
    const size_t begin = at_;
    int depth = 0;
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (depth == 0 && (c == ',' || c == '}')) break;
      if (c == '(' || c == '[') ++depth;
      if ((c == ')' || c == ']') && --depth < 0) fail("a bracket is not opened");
    }
    if (depth != 0) fail("a bracket is not closed");
    return std::string(text_.substr(begin, at_ - begin));
  }

  std::string_view text_;
  const std::string& file_;
  size_t at_ = 0;
};

std::optional<Stored> type_of(std::string_view code) {
  if (code == "u1") return Stored::u8;
  if (code == "i1") return Stored::i8;
  if (code == "i2") return Stored::i16;
  if (code == "i4") return Stored::i32;
  if (code == "i8") return Stored::i64;
  if (code == "f4") return Stored::f32;
  if (code == "f8") return Stored::f64;
  return std::nullopt;
}

void set_type(NpyHeader& header, const std::string& descr, const std::string& file) {
  if (descr.starts_with('['))
    throw base::DataError("{}: a structured array ({}); wanted plain numbers", file, descr.substr(0, 60));
  if (descr.find('O') != std::string::npos) {
    throw base::DataError("{}: an array of Python objects, which are never opened: they can hold code", file);
  }
  const char order = descr.empty() ? ' ' : descr[0];
  const auto type = order == '<' || order == '>' || order == '|' ? type_of(std::string_view(descr).substr(1)) : std::nullopt;
  if (!type || (order == '|' && size_of(*type) != 1)) {
    throw base::DataError("{}: unsupported NPY type '{}'; known are u1, i1, i2, i4, i8, f4, f8", file, descr.substr(0, 20));
  }
  header.type = *type;
  header.order = order == '>' ? std::endian::big : std::endian::little;
}

void set_shape(NpyHeader& header, std::string_view text, const std::string& file) {
  const auto fail = [&] { throw base::DataError("{}: the shape {} is not a tuple of whole numbers", file, text.substr(0, 60)); };
  if (!text.starts_with('(') || !text.ends_with(')')) {
    while (text.ends_with(' ')) text.remove_suffix(1);
    if (!text.starts_with('(') || !text.ends_with(')')) fail();
  }
  std::string_view rest = text.substr(1, text.size() - 2);
  while (true) {
    while (rest.starts_with(' ') || rest.starts_with(',')) rest.remove_prefix(1);
    if (rest.empty()) break;
    uint64_t extent = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), extent);
    if (error != std::errc{} || extent > static_cast<uint64_t>(INT64_MAX)) fail();
    rest.remove_prefix(static_cast<size_t>(end - rest.data()));
    if (!rest.empty() && rest[0] != ',' && rest[0] != ' ') fail();
    header.shape.push_back(static_cast<int64_t>(extent));
    if (static_cast<int>(header.shape.size()) > tensor::Shape::max_rank) {
      throw base::DataError("{}: the shape {} has more than {} axes", file, text.substr(0, 60), tensor::Shape::max_rank);
    }
  }
}

void check_size(NpyHeader& header, const Source& source) {
  header.element_count = 1;
  uint64_t bytes = size_of(header.type);
  for (const int64_t extent : header.shape) {
    header.element_count *= static_cast<uint64_t>(extent);  // no larger than bytes, which is watched
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(extent), &bytes) || bytes > source.most_bytes()) {
      throw base::DataError("{}: the header promises {} {}, more than the file of {} bytes can hold", source.path(),
                            tensor::Shape(header.shape), name_of(header.type), source.file_size());
    }
  }
  const uint64_t wanted = header.bytes + bytes;
  if (!source.compressed() && wanted != source.file_size()) {
    throw base::DataError("{}: {} {} and the header need {} bytes, the file has {}", source.path(), tensor::Shape(header.shape),
                          name_of(header.type), wanted, source.file_size());
  }
}

}  // namespace

NpyHeader read_npy_header(Source& source) {
  const std::string& file = source.path();
  const auto start = read_bytes(source, 8);
  if (start.size() < 8 || std::string_view(reinterpret_cast<const char*>(start.data()), 6) != "\x93NUMPY") {
    throw base::DataError(
        "{}: not an NPY file: it does not begin with \\x93NUMPY{}", file,
        start.size() >= 2 && start[0] == 'P' && start[1] == 'K' ? "; it is an NPZ archive: save one array with numpy.save" : "");
  }
  if (start[6] < 1 || start[6] > 3) throw base::DataError("{}: byte 6: NPY version {}, known are 1 to 3", file, start[6]);
  const size_t length_bytes = start[6] == 1 ? 2 : 4;
  const auto length_field = read_bytes(source, length_bytes);
  if (length_field.size() < length_bytes)
    throw base::DataError("{}: the file ends in its header, at byte {}", file, source.position());
  size_t length = 0;
  for (size_t i = 0; i < length_bytes; ++i) length |= static_cast<size_t>(length_field[i]) << (8 * i);
  if (length > header_cap) throw base::DataError("{}: byte 8: a header of {} bytes, the limit is {}", file, length, header_cap);
  const auto text = read_bytes(source, length);
  if (text.size() < length) {
    throw base::DataError("{}: byte 8: a header of {} bytes, the file ends {} bytes after its begin", file, length, text.size());
  }
  NpyHeader header;
  header.bytes = source.position();
  const auto dictionary = DictionaryReader({reinterpret_cast<const char*>(text.data()), text.size()}, file).read();
  set_type(header, dictionary.descr, file);
  if (!dictionary.fortran_order.starts_with("False")) {
    throw base::DataError("{}: the array is in Fortran order; save numpy.ascontiguousarray(array) instead", file);
  }
  set_shape(header, dictionary.shape, file);
  check_size(header, source);
  return header;
}

}  // namespace gpipe::data
