#include "layers/window.h"

#include "core/base/fields.h"

namespace gpipe::layers {
namespace {

constexpr const char* forms = "same, valid, a number, [height, width] or [top, bottom, left, right]";

std::vector<int64_t> numbers_of(const base::Tree& tree, const std::string& path, base::Problems& problems) {
  base::FieldInfo info;
  info.key = "padding";
  info.type = base::FieldInfo::Type::integer_list;
  info.low = 0;
  info.high = 4096;
  info.scalar_or_list = true;
  return base::detail::read_integers(tree, path, info, problems).value_or(std::vector<int64_t>{0});
}

struct Axis {
  int64_t out, before, after;
};

Axis place_axis(int64_t in, int64_t kernel, int64_t stride, int64_t dilation, bool same, int64_t before, int64_t after) {
  const int64_t extent = (kernel - 1) * dilation + 1;
  if (same) {
    const int64_t out = (in + stride - 1) / stride, total = std::max<int64_t>(0, (out - 1) * stride + extent - in);
    return {out, total / 2, total - total / 2};
  }
  const int64_t room = in + before + after - extent;
  return {room < 0 ? 0 : room / stride + 1, before, after};
}

}  // namespace

const char* const padding_schema =
    R"({"oneOf": [{"enum": ["same", "valid"]}, {"type": "integer", "minimum": 0},
        {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 2, "maxItems": 4}]})";

Padding read_padding(const base::Tree& tree, const std::string& path, base::Problems& problems) {
  if (tree.is_null()) return {};
  if (tree.is_scalar() && tree.text() == "valid") return {};
  if (tree.is_scalar() && tree.text() == "same") return {true, {}};
  const bool number =
      tree.is_scalar() && !tree.text().empty() && tree.text().find_first_not_of("+-0123456789") == std::string::npos;
  if (!number && !tree.is_list()) {
    const std::string found = tree.is_scalar() ? "'" + tree.text() + "'" : tree.kind_words();
    problems.add(tree.where(), path, fmt::format("wanted {}, found {}", forms, found));
    return {};
  }
  const std::vector<int64_t> v = numbers_of(tree, path, problems);
  switch (v.size()) {
    case 1: return {false, {v[0], v[0], v[0], v[0]}};
    case 2: return {false, {v[0], v[0], v[1], v[1]}};
    case 4: return {false, {v[0], v[1], v[2], v[3]}};
    default: problems.add(tree.where(), path, fmt::format("wanted {}, found {} numbers", forms, v.size())); return {};
  }
}

std::array<int64_t, 2> read_pair(const std::vector<int64_t>& values, const base::Location& where, const std::string& path,
                                 base::Problems& problems) {
  if (values.size() == 1) return {values[0], values[0]};
  if (values.size() == 2) return {values[0], values[1]};
  problems.add(where, path, fmt::format("wanted a number or [height, width], found {} numbers", values.size()));
  return {1, 1};
}

Placement place(const char* layer, const Window& w, const tensor::Shape& image) {
  const auto& sides = w.padding.sides;
  const Axis y = place_axis(image[0], w.kernel[0], w.stride[0], w.dilation[0], w.padding.same, sides[0], sides[1]);
  const Axis x = place_axis(image[1], w.kernel[1], w.stride[1], w.dilation[1], w.padding.same, sides[2], sides[3]);
  if (y.out < 1 || x.out < 1)
    throw base::ConfigError(
        "{}: a kernel of {} (dilation [{}, {}]) does not fit on an input of {} with padding [{}, {}, {}, {}]: make the kernel "
        "smaller or the padding larger",
        layer, tensor::Shape{w.kernel[0], w.kernel[1]}, w.dilation[0], w.dilation[1], image, y.before, y.after, x.before,
        x.after);
  return {{y.out, x.out}, y.before, y.after, x.before, x.after};
}

}  // namespace gpipe::layers
