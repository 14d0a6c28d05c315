// Where the positions of one axis of a resampled image come from, written once for every backend: PyTorch's rules, in single
// precision as PyTorch counts (aten/src/ATen/native/UpSample.h), so that ties fall on the same side.
#pragma once

#include "core/device/functors/update.h"

#include <cmath>
#include <cstdint>

namespace gpipe::device {

/// y = (1 - weight) x[low] + weight x[high].
struct Tap {
  int64_t low, high;
  float weight;
};

struct NearestAxis {
  int64_t in;
  float scale;  // input positions an output position
  GPIPE_BOTH Tap operator()(int64_t out) const {
    const int64_t at = static_cast<int64_t>(std::floor(static_cast<float>(out) * scale));
    const int64_t low = at < in - 1 ? at : in - 1;
    return {low, low, 0.0F};
  }
};

struct LinearAxis {
  int64_t in;
  float scale;
  bool align_corners;
  GPIPE_BOTH Tap operator()(int64_t out) const {
    float at = align_corners ? scale * static_cast<float>(out) : scale * (static_cast<float>(out) + 0.5F) - 0.5F;
    at = at < 0 ? 0 : at;
    int64_t low = static_cast<int64_t>(at);
    low = low < in - 1 ? low : in - 1;
    const float weight = at - static_cast<float>(low);
    return {low, low < in - 1 ? low + 1 : low, weight < 0 ? 0.0F : weight > 1 ? 1.0F : weight};
  }
};

}  // namespace gpipe::device
