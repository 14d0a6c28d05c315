// Nodes that are a fixed linear map of a sample, each element of the output a weighted sum of few of the input: padding,
// cropping, slicing, transposing, resampling. The map is written down as a list; forward and backward only walk it.
#include "tests/support/reference.h"

#include <cmath>
#include <functional>
#include <numeric>

namespace gpipe::test {
namespace {

using Index = std::vector<int64_t>;

struct Weighed {
  int64_t out, in;  // in: below 0 for `fill`
  double weight;
};

class MapReference final : public Reference {
 public:
  MapReference(std::vector<Weighed> map, int64_t in, int64_t out, double fill = 0)
      : map_(std::move(map)), in_(static_cast<size_t>(in)), out_(static_cast<size_t>(out)), fill_(fill) {}

  Numbers forward(const ReferenceCall& call) const override {
    Numbers y(static_cast<size_t>(call.samples) * out_);
    for (size_t n = 0; n < static_cast<size_t>(call.samples); ++n)
      for (const Weighed& w : map_)
        y[n * out_ + static_cast<size_t>(w.out)] +=
            w.in < 0 ? fill_ : w.weight * call.inputs[0][n * in_ + static_cast<size_t>(w.in)];
    return y;
  }
  ReferenceGradients backward(const ReferenceCall& call, const Numbers& dy) const override {
    ReferenceGradients d{{Numbers(call.inputs[0].size())}, {}};
    for (size_t n = 0; n < static_cast<size_t>(call.samples); ++n)
      for (const Weighed& w : map_)
        if (w.in >= 0) d.inputs[0][n * in_ + static_cast<size_t>(w.in)] += w.weight * dy[n * out_ + static_cast<size_t>(w.out)];
    return d;
  }

 private:
  std::vector<Weighed> map_;
  size_t in_, out_;
  double fill_;
};

int64_t flat(const Index& extents, const Index& index) {
  int64_t at = 0;
  for (size_t k = 0; k < extents.size(); ++k) {
    if (index[k] < 0 || index[k] >= extents[k]) return -1;
    at = at * extents[k] + index[k];
  }
  return at;
}

// Every output index in order, and the input index that `from` gives for it.
std::unique_ptr<Reference> moved(const Index& in, const Index& out, const std::function<Index(const Index&)>& from,
                                 double fill = 0) {
  const auto elements = [](const Index& extents) {
    return std::accumulate(extents.begin(), extents.end(), int64_t{1}, std::multiplies<>());
  };
  std::vector<Weighed> map;
  Index index(out.size());
  for (int64_t at = 0; at < elements(out); ++at) {
    int64_t rest = at;
    for (size_t k = out.size(); k-- > 0; rest /= out[k]) index[k] = rest % out[k];
    map.push_back({at, flat(in, from(index)), 1});
  }
  return std::make_unique<MapReference>(std::move(map), elements(in), elements(out), fill);
}

// One axis of PyTorch's resampling, from its documentation: torch.nn.Upsample.
std::vector<std::pair<int64_t, double>> sources(const Arguments& a, size_t axis, int64_t in, int64_t out, int64_t o) {
  double step = static_cast<double>(in) / static_cast<double>(out);
  if (const base::Tree* factor = a.raw("scale_factor"); factor != nullptr && in != out)
    step = 1 / std::stod(factor->is_list() ? factor->items()[axis].text() : factor->text());
  const double place = static_cast<double>(o);
  if (a.word("mode", "nearest") == "nearest")
    return {{std::min(in - 1, static_cast<int64_t>(std::floor(place * step + 1e-9))), 1}};
  if (a.truth("align_corners", false)) step = out > 1 ? static_cast<double>(in - 1) / static_cast<double>(out - 1) : 0;
  const double at = a.truth("align_corners", false) ? step * place : std::max(0.0, step * (place + 0.5) - 0.5);
  const int64_t low = std::min(in - 1, static_cast<int64_t>(at + 1e-9)), high = std::min(in - 1, low + 1);
  const double weight = std::min(1.0, at - static_cast<double>(low));
  return {{low, 1 - weight}, {high, weight}};
}

std::unique_ptr<Reference> resampled(const Arguments& a, const Index& in) {
  Index out = in;
  for (size_t k = 0; k < 2; ++k) {
    if (a.has("size")) {
      out[k] = a.pair("size", 1)[k];
      continue;
    }
    const base::Tree& factor = *a.raw("scale_factor");
    out[k] = static_cast<int64_t>(
        std::floor(static_cast<double>(in[k]) * std::stod(factor.is_list() ? factor.items()[k].text() : factor.text())));
  }
  std::vector<Weighed> map;
  for (int64_t y = 0; y < out[0]; ++y)
    for (int64_t x = 0; x < out[1]; ++x)
      for (const auto& [row, row_weight] : sources(a, 0, in[0], out[0], y))
        for (const auto& [column, column_weight] : sources(a, 1, in[1], out[1], x))
          for (int64_t c = 0; c < in[2]; ++c)
            map.push_back({flat(out, {y, x, c}), flat(in, {row, column, c}), row_weight * column_weight});
  return std::make_unique<MapReference>(std::move(map), in[0] * in[1] * in[2], out[0] * out[1] * out[2]);
}

// [before, after] of every axis but the last.
std::vector<Index> ends_of(const Index& numbers, size_t axes) {
  std::vector<Index> ends;
  for (size_t k = 0; k < axes; ++k)
    ends.push_back(numbers.size() == 1 ? Index{numbers[0], numbers[0]} : Index{numbers[2 * k], numbers[2 * k + 1]});
  return ends;
}

std::unique_ptr<Reference> framed(const std::string& type, const Arguments& a, const Index& in) {
  std::vector<Index> ends = ends_of(a.has("padding")    ? a.list("padding")
                                    : a.has("cropping") ? a.list("cropping")
                                                        : Index{0},
                                    in.size() - 1);
  Index out = in;
  for (size_t k = 0; k < ends.size(); ++k) {
    if (type == "crop") ends[k] = {-ends[k][0], -ends[k][1]};
    if (a.has("size")) {
      const int64_t rest = in[k] - a.pair("size", 1)[k];
      ends[k] = {-(rest / 2), -(rest - rest / 2)};
    }
    out[k] += ends[k][0] + ends[k][1];
  }
  return moved(
      in, out,
      [ends](Index index) {
        for (size_t k = 0; k < ends.size(); ++k) index[k] -= ends[k][0];
        return index;
      },
      a.number("value", 0));
}

std::unique_ptr<Reference> transposed(const Arguments& a, const Index& in) {
  const int64_t rank = static_cast<int64_t>(in.size());
  const auto axis = [&](int64_t named) { return static_cast<size_t>(named < 0 ? named + rank : named); };
  std::vector<size_t> order(in.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (a.has("axes"))
    for (size_t k = 0; k < order.size(); ++k) order[k] = axis(a.list("axes")[k]);
  else
    std::swap(order[axis(a.list("swap")[0])], order[axis(a.list("swap")[1])]);
  Index out;
  for (size_t from : order) out.push_back(in[from]);
  return moved(in, out, [order](const Index& index) {
    Index from(index.size());
    for (size_t k = 0; k < order.size(); ++k) from[order[k]] = index[k];
    return from;
  });
}

std::unique_ptr<Reference> sliced(const Arguments& a, const Index& in) {
  const int64_t named = a.integer("axis", -1);
  const size_t axis = static_cast<size_t>(named < 0 ? named + static_cast<int64_t>(in.size()) : named);
  const auto counted = [&](int64_t index) { return index < 0 ? index + in[axis] : index; };
  const int64_t begin = counted(a.integer("begin", 0)), end = a.has("end") ? counted(a.integer("end", 0)) : in[axis];
  Index out = in;
  out[axis] = end - begin;
  return moved(in, out, [axis, begin](Index index) {
    index[axis] += begin;
    return index;
  });
}

}  // namespace

std::unique_ptr<Reference> make_move_reference(const std::string& type, const Arguments& a, const std::vector<Shape>& inputs) {
  const Index in(inputs[0].extents().begin(), inputs[0].extents().end());
  if (type == "pad" || type == "crop") return framed(type, a, in);
  if (type == "upsample") return resampled(a, in);
  if (type == "transpose") return transposed(a, in);
  if (type == "slice") return sliced(a, in);
  return nullptr;
}

}  // namespace gpipe::test
