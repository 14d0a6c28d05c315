// Pooling and resampling, channels-last: a thread writes one element, from a window that it walks in ascending order.
#include "core/device/cuda/ops.h"
#include "core/device/cuda/skeletons.h"
#include "core/device/functors/resample.h"

#include <cmath>

namespace gpipe::device::cuda {
namespace {

struct Range {
  int64_t begin, end;
};

GPIPE_KERNEL int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
GPIPE_KERNEL int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

// One axis of the windows.
struct Axis {
  int64_t in, out, kernel, stride, pad;

  GPIPE_KERNEL int64_t start(int64_t o) const { return o * stride - pad; }
  // Offsets inside the window of output o that lie on the input.
  GPIPE_KERNEL Range inside(int64_t o) const { return {most(0, -start(o)), least(kernel, in - start(o))}; }
  // Outputs whose window covers input i.
  GPIPE_KERNEL Range covering(int64_t i) const {
    const int64_t first = i + pad - kernel + 1;
    return {first <= 0 ? 0 : (first + stride - 1) / stride, least(out, (i + pad) / stride + 1)};
  }
};

struct Windows {
  PoolSpec::Kind kind;
  int64_t channels;
  Axis rows, columns;
  float whole_share;
  bool small;  // positions in a window fit a byte

  explicit Windows(const PoolSpec& spec)
      : kind(spec.kind),
        channels(spec.channels),
        rows{spec.in_height, spec.out_height, spec.kernel[0], spec.stride[0], spec.pad_top},
        columns{spec.in_width, spec.out_width, spec.kernel[1], spec.stride[1], spec.pad_left},
        whole_share(1.0F / static_cast<float>(spec.kernel[0] * spec.kernel[1])),
        small(spec.kernel[0] * spec.kernel[1] <= 256) {}

  GPIPE_KERNEL float share(Range vertical, Range horizontal) const {
    if (kind == PoolSpec::Kind::average) return whole_share;
    return 1.0F / static_cast<float>((vertical.end - vertical.begin) * (horizontal.end - horizontal.begin));
  }
  GPIPE_KERNEL int32_t saved_at(const std::byte* saved, int64_t i) const {
    return small ? static_cast<int32_t>(reinterpret_cast<const uint8_t*>(saved)[i]) : reinterpret_cast<const int32_t*>(saved)[i];
  }
  GPIPE_KERNEL void save(std::byte* saved, int64_t i, int32_t where) const {
    if (small)
      reinterpret_cast<uint8_t*>(saved)[i] = static_cast<uint8_t>(where);
    else
      reinterpret_cast<int32_t*>(saved)[i] = where;
  }

  // Output element i. The first of the largest, as PyTorch; NaN counts as larger than everything.
  GPIPE_KERNEL void forward(const float* x, float* y, std::byte* saved, int64_t i) const {
    const int64_t c = i % channels, ow = i / channels % columns.out, row = i / channels / columns.out;
    const int64_t oh = row % rows.out, sample = row / rows.out;
    const Range vertical = rows.inside(oh), horizontal = columns.inside(ow);
    const int64_t corner = ((sample * rows.in + rows.start(oh)) * columns.in + columns.start(ow)) * channels + c;
    float best = -INFINITY, sum = 0;
    int64_t where = vertical.begin * columns.kernel + horizontal.begin;
    for (int64_t kh = vertical.begin; kh < vertical.end; ++kh)
      for (int64_t kw = horizontal.begin; kw < horizontal.end; ++kw) {
        const float v = x[corner + (kh * columns.in + kw) * channels];
        sum += v;
        if (!(v > best) && v == v) continue;
        best = v;
        where = kh * columns.kernel + kw;
      }
    if (kind != PoolSpec::Kind::max) {
      y[i] = sum * share(vertical, horizontal);
      return;
    }
    y[i] = best;
    save(saved, i, static_cast<int32_t>(where));
  }

  // Gradient of input element i.
  GPIPE_KERNEL float backward(const float* dy, const std::byte* saved, int64_t i) const {
    const int64_t c = i % channels, iw = i / channels % columns.in, row = i / channels / columns.in;
    const int64_t ih = row % rows.in, sample = row / rows.in;
    const Range vertical = rows.covering(ih), horizontal = columns.covering(iw);
    float sum = 0;
    for (int64_t oh = vertical.begin; oh < vertical.end; ++oh)
      for (int64_t ow = horizontal.begin; ow < horizontal.end; ++ow) {
        const int64_t at = ((sample * rows.out + oh) * columns.out + ow) * channels + c;
        const int64_t tap = (ih - rows.start(oh)) * columns.kernel + (iw - columns.start(ow));
        if (kind != PoolSpec::Kind::max)
          sum += dy[at] * share(rows.inside(oh), columns.inside(ow));
        else
          sum += saved_at(saved, at) == tap ? dy[at] : 0.0F;
      }
    return sum;
  }
};

class CudaPool final : public PoolOp {
 public:
  CudaPool(const PoolSpec& spec, const Queue& queue) : windows_(spec), queue_(queue) {}

  size_t saved_bytes(int64_t batch) const override {
    if (windows_.kind != PoolSpec::Kind::max) return 0;
    return static_cast<size_t>(batch * windows_.rows.out * windows_.columns.out * windows_.channels * (windows_.small ? 1 : 4));
  }
  void forward(const TensorView& x, const TensorView& y, std::byte* saved, std::byte*) override {
    const float* in = x.f32();
    float* out = y.f32();
    each(queue_, "pool", y.elements(), [=, w = windows_] GPIPE_KERNEL(int64_t i) { w.forward(in, out, saved, i); });
  }
  void backward(const TensorView& dy, const std::byte* saved, const TensorView& dx, std::byte*) override {
    const float* from = dy.f32();
    float* to = dx.f32();
    each(queue_, "pool gradient", dx.elements(),
         [=, w = windows_] GPIPE_KERNEL(int64_t i) { to[i] = w.backward(from, saved, i); });
  }

 private:
  Windows windows_;
  const Queue& queue_;
};

/// One axis of a resampled image: what an output position reads, and (found by halving, because what is read ascends) which
/// output positions read an input position.
struct Grid {
  ResampleSpec::Kind kind;
  int64_t in, out;
  float scale;

  GPIPE_KERNEL Tap tap(int64_t o) const {
    if (kind == ResampleSpec::Kind::nearest) return NearestAxis{in, scale}(o);
    return LinearAxis{in, scale, kind == ResampleSpec::Kind::bilinear_align_corners}(o);
  }
  GPIPE_KERNEL Range readers(int64_t i) const {
    int64_t low = 0, high = out;  // the first output that reads i or more
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (tap(middle).high < i)
        low = middle + 1;
      else
        high = middle;
    }
    const int64_t begin = low;
    high = out;  // the first output that reads beyond i alone
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (tap(middle).low <= i)
        low = middle + 1;
      else
        high = middle;
    }
    return {begin, low};
  }
  // What output o takes of input i; below 0: nothing at all.
  GPIPE_KERNEL float weight(int64_t o, int64_t i) const {
    const Tap t = tap(o);
    if (t.low == t.high) return t.low == i ? 1.0F : -1.0F;
    if (t.low == i) return 1.0F - t.weight;
    return t.high == i && t.weight > 0 ? t.weight : -1.0F;
  }
};

struct Image {
  Grid rows, columns;
  int64_t channels;

  GPIPE_KERNEL float forward(const float* x, int64_t i) const {
    const int64_t c = i % channels, ow = i / channels % columns.out, row = i / channels / columns.out;
    const Tap down = rows.tap(row % rows.out), right = columns.tap(ow);
    const float* image = x + row / rows.out * rows.in * columns.in * channels + c;
    const float *low = image + down.low * columns.in * channels, *high = image + down.high * columns.in * channels;
    const int64_t a = right.low * channels, b = right.high * channels;
    if (rows.kind == ResampleSpec::Kind::nearest) return low[a];
    const float rest = 1.0F - down.weight, left = 1.0F - right.weight;
    return rest * (left * low[a] + right.weight * low[b]) + down.weight * (left * high[a] + right.weight * high[b]);
  }

  // The sums of the CPU in their order: down the rows first, then along the columns.
  GPIPE_KERNEL float backward(const float* dy, int64_t i) const {
    const int64_t c = i % channels, iw = i / channels % columns.in, row = i / channels / columns.in;
    const int64_t ih = row % rows.in;
    const float* image = dy + row / rows.in * rows.out * columns.out * channels + c;
    const Range down = rows.readers(ih), right = columns.readers(iw);
    float all = 0;
    if (rows.kind == ResampleSpec::Kind::nearest && channels >= 16) {
      for (int64_t oh = down.begin; oh < down.end; ++oh)
        for (int64_t ow = right.begin; ow < right.end; ++ow) all += image[(oh * columns.out + ow) * channels];
      return all;
    }
    for (int64_t ow = right.begin; ow < right.end; ++ow) {
      const float across = columns.weight(ow, iw);
      if (across < 0) continue;
      float sum = 0;
      for (int64_t oh = down.begin; oh < down.end; ++oh) {
        const float along = rows.weight(oh, ih);
        if (along >= 0) sum += along * image[(oh * columns.out + ow) * channels];
      }
      all += across * sum;
    }
    return all;
  }
};

class CudaResample final : public ResampleOp {
 public:
  CudaResample(const ResampleSpec& spec, const Queue& queue)
      : image_{{spec.kind, spec.in_height, spec.out_height, static_cast<float>(spec.scale[0])},
               {spec.kind, spec.in_width, spec.out_width, static_cast<float>(spec.scale[1])},
               spec.channels},
        queue_(queue) {}

  void forward(const TensorView& x, const TensorView& y) override {
    const float* in = x.f32();
    float* out = y.f32();
    each(queue_, "resample", y.elements(), [=, image = image_] GPIPE_KERNEL(int64_t i) { out[i] = image.forward(in, i); });
  }
  void backward(const TensorView& dy, const TensorView& dx, std::byte*) override {
    const float* from = dy.f32();
    float* to = dx.f32();
    each(queue_, "resample gradient", dx.elements(),
         [=, image = image_] GPIPE_KERNEL(int64_t i) { to[i] = image.backward(from, i); });
  }

 private:
  Image image_;
  const Queue& queue_;
};

}  // namespace

std::unique_ptr<PoolOp> make_pool(const PoolSpec& spec, const Queue& queue) { return std::make_unique<CudaPool>(spec, queue); }
std::unique_ptr<ResampleOp> make_resample(const ResampleSpec& spec, const Queue& queue) {
  return std::make_unique<CudaResample>(spec, queue);
}

}  // namespace gpipe::device::cuda
