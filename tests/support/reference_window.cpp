// Convolution and pooling, one output at a time.
#include "tests/support/reference.h"

#include <array>
#include <functional>
#include <limits>

namespace gpipe::test {
namespace {

struct Geometry {
  int64_t height, width, channels;
  int64_t out_height, out_width;
  std::vector<int64_t> kernel, stride, dilation;
  std::array<int64_t, 4> pad;  // top, bottom, left, right
};

Geometry geometry_of(const Arguments& a, const Shape& image, std::vector<int64_t> stride) {
  Geometry g{image[0], image[1], image[2], 0, 0, a.pair("kernel_size", 1), std::move(stride), a.pair("dilation", 1), {}};
  const base::Tree* padding = a.raw("padding");
  const auto total = [&](int axis, int64_t in) {
    const auto i = static_cast<size_t>(axis);
    const int64_t out = (in + g.stride[i] - 1) / g.stride[i];
    return std::max<int64_t>(0, (out - 1) * g.stride[i] + (g.kernel[i] - 1) * g.dilation[i] + 1 - in);
  };
  if (padding != nullptr && padding->is_scalar() && padding->text() == "same") {
    const int64_t rows = total(0, g.height), columns = total(1, g.width);
    g.pad = {rows / 2, rows - rows / 2, columns / 2, columns - columns / 2};
  } else if (padding != nullptr && !(padding->is_scalar() && padding->text() == "valid")) {
    const std::vector<int64_t> v = a.pair("padding", 0);
    g.pad = v.size() == 2 ? std::array{v[0], v[0], v[1], v[1]} : std::array{v[0], v[1], v[2], v[3]};
  }
  g.out_height = (g.height + g.pad[0] + g.pad[1] - ((g.kernel[0] - 1) * g.dilation[0] + 1)) / g.stride[0] + 1;
  g.out_width = (g.width + g.pad[2] + g.pad[3] - ((g.kernel[1] - 1) * g.dilation[1] + 1)) / g.stride[1] + 1;
  return g;
}

// Calls visit(output position, kernel position, input position or -1 in the padding) for one sample.
using Visit = std::function<void(int64_t, int64_t, int64_t)>;
void each_tap(const Geometry& g, const Visit& visit) {
  for (int64_t oh = 0; oh < g.out_height; ++oh)
    for (int64_t ow = 0; ow < g.out_width; ++ow)
      for (int64_t kh = 0; kh < g.kernel[0]; ++kh)
        for (int64_t kw = 0; kw < g.kernel[1]; ++kw) {
          const int64_t ih = oh * g.stride[0] - g.pad[0] + kh * g.dilation[0];
          const int64_t iw = ow * g.stride[1] - g.pad[2] + kw * g.dilation[1];
          const bool inside = ih >= 0 && ih < g.height && iw >= 0 && iw < g.width;
          visit(oh * g.out_width + ow, kh * g.kernel[1] + kw, inside ? ih * g.width + iw : -1);
        }
}

class ConvolutionReference final : public Reference {
 public:
  ConvolutionReference(const Arguments& a, const Shape& image)
      : g_(geometry_of(a, image, a.pair("stride", 1))),
        out_(a.integer("out_channels", 1)),
        groups_(a.integer("groups", 1)),
        bias_(a.truth("bias", true)) {}

  Numbers forward(const ReferenceCall& call) const override {
    Numbers y(static_cast<size_t>(call.samples * g_.out_height * g_.out_width * out_));
    each_product(call.samples, [&](size_t x, size_t w, size_t out) { y[out] += call.inputs[0][x] * call.parameters[0][w]; });
    if (bias_)
      for (size_t i = 0; i < y.size(); ++i) y[i] += call.parameters[1][i % static_cast<size_t>(out_)];
    return y;
  }

  ReferenceGradients backward(const ReferenceCall& call, const Numbers& dy) const override {
    ReferenceGradients d{{Numbers(call.inputs[0].size())}, {Numbers(call.parameters[0].size())}};
    each_product(call.samples, [&](size_t x, size_t w, size_t out) {
      d.inputs[0][x] += dy[out] * call.parameters[0][w];
      d.parameters[0][w] += dy[out] * call.inputs[0][x];
    });
    if (bias_) {
      d.parameters.emplace_back(static_cast<size_t>(out_));
      for (size_t i = 0; i < dy.size(); ++i) d.parameters[1][i % static_cast<size_t>(out_)] += dy[i];
    }
    return d;
  }

 private:
  template <class Body>
  void each_product(int64_t samples, const Body& body) const {
    const int64_t in = g_.channels / groups_, out = out_ / groups_, area = g_.kernel[0] * g_.kernel[1];
    for (int64_t n = 0; n < samples; ++n)
      each_tap(g_, [&](int64_t at, int64_t k, int64_t from) {
        if (from < 0) return;
        for (int64_t o = 0; o < out_; ++o)
          for (int64_t c = 0; c < in; ++c)
            body(static_cast<size_t>((n * g_.height * g_.width + from) * g_.channels + o / out * in + c),
                 static_cast<size_t>((o * in + c) * area + k),
                 static_cast<size_t>((n * g_.out_height * g_.out_width + at) * out_ + o));
      });
  }

  Geometry g_;
  int64_t out_, groups_;
  bool bias_;
};

// Every input element adds its products to the output: torch.nn.ConvTranspose2d by its definition.
class TransposedReference final : public Reference {
 public:
  TransposedReference(const Arguments& a, const Shape& image)
      : in_{image[0], image[1], image[2]},
        kernel_(a.pair("kernel_size", 1)),
        stride_(a.pair("stride", 1)),
        padding_(a.pair("padding", 0)),
        dilation_(a.pair("dilation", 1)),
        groups_(a.integer("groups", 1)),
        bias_(a.truth("bias", true)),
        out_{0, 0, a.integer("out_channels", 1)} {
    const std::vector<int64_t> more = a.pair("output_padding", 0);
    for (size_t k = 0; k < 2; ++k)
      out_[k] = (in_[k] - 1) * stride_[k] - 2 * padding_[k] + dilation_[k] * (kernel_[k] - 1) + more[k] + 1;
  }

  Numbers forward(const ReferenceCall& call) const override {
    Numbers y(static_cast<size_t>(call.samples * out_[0] * out_[1] * out_[2]));
    each_product(call.samples, [&](size_t x, size_t w, size_t out) { y[out] += call.inputs[0][x] * call.parameters[0][w]; });
    if (bias_)
      for (size_t i = 0; i < y.size(); ++i) y[i] += call.parameters[1][i % static_cast<size_t>(out_[2])];
    return y;
  }
  ReferenceGradients backward(const ReferenceCall& call, const Numbers& dy) const override {
    ReferenceGradients d{{Numbers(call.inputs[0].size())}, {Numbers(call.parameters[0].size())}};
    each_product(call.samples, [&](size_t x, size_t w, size_t out) {
      d.inputs[0][x] += dy[out] * call.parameters[0][w];
      d.parameters[0][w] += dy[out] * call.inputs[0][x];
    });
    if (bias_) {
      d.parameters.emplace_back(static_cast<size_t>(out_[2]));
      for (size_t i = 0; i < dy.size(); ++i) d.parameters[1][i % static_cast<size_t>(out_[2])] += dy[i];
    }
    return d;
  }

 private:
  // body(input element, weight [in, out / groups, kH, kW], output element)
  template <class Body>
  void each_product(int64_t samples, const Body& body) const {
    const int64_t in = in_[2] / groups_, out = out_[2] / groups_, area = kernel_[0] * kernel_[1];
    for (int64_t at = 0; at < samples * in_[0] * in_[1]; ++at)
      for (int64_t k = 0; k < area; ++k) {
        const int64_t ih = at / in_[1] % in_[0], iw = at % in_[1], n = at / in_[1] / in_[0];
        const int64_t oh = ih * stride_[0] - padding_[0] + k / kernel_[1] * dilation_[0];
        const int64_t ow = iw * stride_[1] - padding_[1] + k % kernel_[1] * dilation_[1];
        if (oh < 0 || oh >= out_[0] || ow < 0 || ow >= out_[1]) continue;
        for (int64_t i = 0; i < in_[2]; ++i)
          for (int64_t o = 0; o < out; ++o)
            body(static_cast<size_t>(at * in_[2] + i), static_cast<size_t>((i * out + o) * area + k),
                 static_cast<size_t>(((n * out_[0] + oh) * out_[1] + ow) * out_[2] + i / in * out + o));
      }
  }

  std::array<int64_t, 3> in_;
  std::vector<int64_t> kernel_, stride_, padding_, dilation_;
  int64_t groups_;
  bool bias_;
  std::array<int64_t, 3> out_;
};

class PoolReference final : public Reference {
 public:
  PoolReference(Geometry geometry, bool max, bool count_padding)
      : g_(std::move(geometry)), max_(max), count_padding_(count_padding) {}

  Numbers forward(const ReferenceCall& call) const override {
    Numbers y(static_cast<size_t>(call.samples * g_.out_height * g_.out_width * g_.channels));
    each_share(call, [&](size_t in, size_t out, double share) { y[out] += share * call.inputs[0][in]; });
    return y;
  }
  ReferenceGradients backward(const ReferenceCall& call, const Numbers& dy) const override {
    ReferenceGradients d{{Numbers(call.inputs[0].size())}, {}};
    each_share(call, [&](size_t in, size_t out, double share) { d.inputs[0][in] += share * dy[out]; });
    return d;
  }

 private:
  // Every pool is a weighted sum: body(input, output, weight).
  template <class Body>
  void each_share(const ReferenceCall& call, const Body& body) const {
    const int64_t positions = g_.out_height * g_.out_width, area = g_.kernel[0] * g_.kernel[1];
    std::vector<int64_t> inside(static_cast<size_t>(positions));
    each_tap(g_, [&](int64_t at, int64_t, int64_t from) { inside[static_cast<size_t>(at)] += from >= 0 ? 1 : 0; });
    for (int64_t n = 0; n < call.samples; ++n)
      for (int64_t c = 0; c < g_.channels; ++c) {
        const auto in = [&](int64_t from) { return static_cast<size_t>((n * g_.height * g_.width + from) * g_.channels + c); };
        const auto out = [&](int64_t at) { return static_cast<size_t>((n * positions + at) * g_.channels + c); };
        std::vector<int64_t> best(static_cast<size_t>(positions), -1);
        each_tap(g_, [&](int64_t at, int64_t, int64_t from) {
          if (from < 0) return;
          int64_t& b = best[static_cast<size_t>(at)];
          if (b < 0 || call.inputs[0][in(from)] > call.inputs[0][in(b)]) b = from;
          const int64_t divisor = count_padding_ ? area : inside[static_cast<size_t>(at)];
          if (!max_) body(in(from), out(at), 1.0 / static_cast<double>(divisor));
        });
        for (int64_t at = 0; max_ && at < positions; ++at) body(in(best[static_cast<size_t>(at)]), out(at), 1.0);
      }
  }

  Geometry g_;
  bool max_, count_padding_;
};

}  // namespace

std::unique_ptr<Reference> make_window_reference(const std::string& type, const Arguments& a, const std::vector<Shape>& inputs) {
  if (type == "conv2d") return std::make_unique<ConvolutionReference>(a, inputs[0]);
  if (type == "conv_transpose2d") return std::make_unique<TransposedReference>(a, inputs[0]);
  if (type == "max_pool2d" || type == "avg_pool2d") {
    Geometry g = geometry_of(a, inputs[0], a.has("stride") ? a.pair("stride", 1) : a.pair("kernel_size", 1));
    return std::make_unique<PoolReference>(std::move(g), type == "max_pool2d", a.truth("count_include_pad", true));
  }
  if (type == "global_avg_pool") {
    const Shape& x = inputs[0];
    const int64_t width = x.rank() == 3 ? x[1] : 1;
    return std::make_unique<PoolReference>(Geometry{x[0], width, x.back(), 1, 1, {x[0], width}, {1, 1}, {1, 1}, {}}, false, true);
  }
  return nullptr;
}

}  // namespace gpipe::test
