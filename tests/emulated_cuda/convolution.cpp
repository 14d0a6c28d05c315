#include "tests/emulated_cuda/convolution.h"

#include "tests/emulated_cuda/gemm.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

namespace gpipe::emulated {

namespace {

using Floats = std::vector<float>;

/// A tensor of four sizes as f32 in the order [a][c][d][b] of a tensor [a, b, c, d] (NHWC of NCHW).
struct Packed {
  int64_t a, b, c, d;
  int64_t at(int64_t i, int64_t j, int64_t k, int64_t l) const { return ((i * c + k) * d + l) * b + j; }
  /// Where the element is in memory.
  int64_t source(int64_t i, int64_t j, int64_t k, int64_t l, bool nhwc) const {
    return nhwc ? at(i, j, k, l) : ((i * b + j) * c + k) * d + l;
  }
  int64_t elements() const { return a * b * c * d; }

  template <class Body>
  void each(Body&& body) const {
    for (int64_t i = 0; i < a; ++i) {
      for (int64_t k = 0; k < c; ++k) {
        for (int64_t l = 0; l < d; ++l) {
          for (int64_t j = 0; j < b; ++j) body(i, j, k, l);
        }
      }
    }
  }
};

Floats read(const ConvolutionTask& task, const char* argument, const void* data, const Packed& sizes) {
  const ConvolutionShape& z = task.shape;
  check_written(task.call, argument, data, static_cast<size_t>(sizes.elements()), bytes_of(z.type));
  Floats values(static_cast<size_t>(sizes.elements()));
  sizes.each([&](int64_t i, int64_t j, int64_t k, int64_t l) {
    const float value = load(data, z.type, sizes.source(i, j, k, l, z.nhwc));
    values[static_cast<size_t>(sizes.at(i, j, k, l))] = z.type == Number::f32 ? rounded(value, task.rounding) : value;
  });
  return values;
}

void write(const ConvolutionTask& task, const Packed& sizes, const Floats& values) {
  const ConvolutionShape& z = task.shape;
  if (task.beta != 0) check_written(task.call, "the output", task.out, static_cast<size_t>(sizes.elements()), bytes_of(z.type));
  sizes.each([&](int64_t i, int64_t j, int64_t k, int64_t l) {
    const int64_t to = sizes.source(i, j, k, l, z.nhwc);
    float value = task.alpha * values[static_cast<size_t>(sizes.at(i, j, k, l))];
    if (task.beta != 0) value += task.beta * load(task.out, z.type, to);
    store(task.out, z.type, to, value);
  });
}

__attribute__((no_sanitize("thread"))) inline void add_scaled(float* acc, const float* x, float factor, int64_t count) {
  for (int64_t i = 0; i < count; ++i) acc[i] += x[i] * factor;
}

/// 0..count-1 in the order of the task.
std::vector<int64_t> order_of(const ConvolutionTask& task, int64_t count) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  if (task.order == SumOrder::backwards) std::reverse(order.begin(), order.end());
  if (task.order == SumOrder::random) {
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[mix(task.random, i) % i]);
  }
  return order;
}

/// One product of a sum: a place in the filter and a channel.
struct Tap {
  int64_t r, s, channel;
};

std::vector<Tap> taps_of(const ConvolutionTask& task, int64_t channels) {
  const ConvolutionShape& z = task.shape;
  std::vector<Tap> taps;
  for (const int64_t i : order_of(task, z.r * z.s * channels)) {
    if (task.order == SumOrder::channel_first) {
      taps.push_back({i / z.s % z.r, i % z.s, i / (z.s * z.r)});
    } else {
      taps.push_back({i / (channels * z.s), i / channels % z.s, i % channels});
    }
  }
  return taps;
}

/// The row (or column) of x under place `tap` of the filter for row `out` of y.
int64_t under(int64_t out, int64_t tap, int64_t size, int64_t stride, int64_t dilation, int64_t pad, bool flipped) {
  return out * stride - pad + (flipped ? size - 1 - tap : tap) * dilation;
}

/// The row of y that reads row `in` of x at place `tap`, or -1.
int64_t over(int64_t in, int64_t tap, int64_t size, int64_t stride, int64_t dilation, int64_t pad, bool flipped, int64_t outs) {
  const int64_t at = in + pad - (flipped ? size - 1 - tap : tap) * dilation;
  return at < 0 || at % stride != 0 || at / stride >= outs ? -1 : at / stride;
}

struct Sizes {
  Packed x, filter, y;
  explicit Sizes(const ConvolutionShape& z)
      : x{z.n, z.c, z.h, z.w}, filter{z.k, z.c / z.groups, z.r, z.s}, y{z.n, z.k, z.oh, z.ow} {}
};

/// The filter as [group][r][s][channel of the group][filter of the group], or with the last two swapped.
Floats regroup(const ConvolutionShape& z, const Packed& sizes, const Floats& filter, bool filters_last) {
  const int64_t kg = z.k / z.groups;
  const int64_t cg = z.c / z.groups;
  Floats made(filter.size());
  sizes.each([&](int64_t k, int64_t c, int64_t r, int64_t s) {
    const int64_t place = ((k / kg) * z.r + r) * z.s + s;
    const int64_t at = filters_last ? (place * cg + c) * kg + k % kg : (place * kg + k % kg) * cg + c;
    made[static_cast<size_t>(at)] = filter[static_cast<size_t>(sizes.at(k, c, r, s))];
  });
  return made;
}

Floats forward(const ConvolutionTask& task, const Sizes& sizes, const Floats& x, const Floats& filter) {
  const ConvolutionShape& z = task.shape;
  const int64_t kg = z.k / z.groups;
  const int64_t cg = z.c / z.groups;
  const Floats grouped = regroup(z, sizes.filter, filter, true);
  const std::vector<Tap> taps = taps_of(task, cg);
  Floats y(static_cast<size_t>(sizes.y.elements()));
  sizes.y.each([&](int64_t n, int64_t k, int64_t oh, int64_t ow) {
    if (k % kg != 0) return;  // a group at once
    const int64_t group = k / kg;
    float* acc = y.data() + sizes.y.at(n, k, oh, ow);
    for (const Tap& tap : taps) {
      const int64_t h = under(oh, tap.r, z.r, z.stride_h, z.dilation_h, z.pad_h, z.flipped);
      const int64_t w = under(ow, tap.s, z.s, z.stride_w, z.dilation_w, z.pad_w, z.flipped);
      if (h < 0 || h >= z.h || w < 0 || w >= z.w) continue;
      const float* row = grouped.data() + (((group * z.r + tap.r) * z.s + tap.s) * cg + tap.channel) * kg;
      add_scaled(acc, row, x[static_cast<size_t>(sizes.x.at(n, group * cg + tap.channel, h, w))], kg);
    }
  });
  return y;
}

Floats backward_data(const ConvolutionTask& task, const Sizes& sizes, const Floats& filter, const Floats& dy) {
  const ConvolutionShape& z = task.shape;
  const int64_t kg = z.k / z.groups;
  const int64_t cg = z.c / z.groups;
  const Floats grouped = regroup(z, sizes.filter, filter, false);
  const std::vector<Tap> taps = taps_of(task, kg);
  Floats dx(static_cast<size_t>(sizes.x.elements()));
  sizes.x.each([&](int64_t n, int64_t c, int64_t h, int64_t w) {
    if (c % cg != 0) return;
    const int64_t group = c / cg;
    float* acc = dx.data() + sizes.x.at(n, c, h, w);
    for (const Tap& tap : taps) {
      const int64_t oh = over(h, tap.r, z.r, z.stride_h, z.dilation_h, z.pad_h, z.flipped, z.oh);
      const int64_t ow = over(w, tap.s, z.s, z.stride_w, z.dilation_w, z.pad_w, z.flipped, z.ow);
      if (oh < 0 || ow < 0) continue;
      const float* row = grouped.data() + (((group * z.r + tap.r) * z.s + tap.s) * kg + tap.channel) * cg;
      add_scaled(acc, row, dy[static_cast<size_t>(sizes.y.at(n, group * kg + tap.channel, oh, ow))], cg);
    }
  });
  return dx;
}

Floats backward_filter(const ConvolutionTask& task, const Sizes& sizes, const Floats& x, const Floats& dy) {
  const ConvolutionShape& z = task.shape;
  const int64_t kg = z.k / z.groups;
  const int64_t cg = z.c / z.groups;
  const std::vector<int64_t> places = order_of(task, z.n * z.oh * z.ow);
  Floats dw(static_cast<size_t>(sizes.filter.elements()));
  sizes.filter.each([&](int64_t k, int64_t c, int64_t r, int64_t s) {
    if (c != 0) return;
    float* acc = dw.data() + sizes.filter.at(k, 0, r, s);
    for (const int64_t place : places) {
      const int64_t ow = place % z.ow;
      const int64_t oh = place / z.ow % z.oh;
      const int64_t n = place / (z.ow * z.oh);
      const int64_t h = under(oh, r, z.r, z.stride_h, z.dilation_h, z.pad_h, z.flipped);
      const int64_t w = under(ow, s, z.s, z.stride_w, z.dilation_w, z.pad_w, z.flipped);
      if (h < 0 || h >= z.h || w < 0 || w >= z.w) continue;
      const float* row = x.data() + sizes.x.at(n, k / kg * cg, h, w);
      add_scaled(acc, row, dy[static_cast<size_t>(sizes.y.at(n, k, oh, ow))], cg);
    }
  });
  return dw;
}

}  // namespace

void convolve(const ConvolutionTask& task) {
  scribble(task.workspace, task.workspace_bytes);
  const Sizes sizes(task.shape);
  switch (task.direction) {
    case Direction::forward: {
      const Floats x = read(task, "x", task.x, sizes.x);
      const Floats filter = read(task, "w", task.filter, sizes.filter);
      write(task, sizes.y, forward(task, sizes, x, filter));
      break;
    }
    case Direction::backward_data: {
      const Floats filter = read(task, "w", task.filter, sizes.filter);
      const Floats dy = read(task, "dy", task.y, sizes.y);
      write(task, sizes.x, backward_data(task, sizes, filter, dy));
      break;
    }
    case Direction::backward_filter: {
      const Floats x = read(task, "x", task.x, sizes.x);
      const Floats dy = read(task, "dy", task.y, sizes.y);
      write(task, sizes.filter, backward_filter(task, sizes, x, dy));
      break;
    }
  }
}

}  // namespace gpipe::emulated
