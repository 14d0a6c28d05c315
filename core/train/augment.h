// What happens to a sample between the data set and the network, in this order: random crop (zero padding in raw values),
// horizontal flip, normalisation, cutout (zeros after normalisation, that is: the mean). Crop and flip are torchvision's
// order; cutout is DeVries and Taylor, arXiv 1708.04552. Every draw is a pure function of (seed, epoch, sample index).
#pragma once

#include "core/tensor/tensor.h"
#include "core/train/dataset.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace gpipe::train {

struct Augmentation {
  int64_t random_crop = 0;       // padding in pixels
  bool horizontal_flip = false;  // with probability 1/2
  int64_t cutout = 0;            // side of the square; its centre may lie anywhere in the image
  bool any() const { return random_crop > 0 || horizontal_flip || cutout > 0; }
};

/// y = (x - mean) * scale per channel, that is: per place on the last axis. Empty: as stored.
struct Normalization {
  std::vector<float> mean;   // one a channel
  std::vector<float> scale;  // 1 / standard deviation
  bool any() const { return !mean.empty(); }
  void apply(std::span<float> sample) const;
};

/// Mean and standard deviation (population) of every channel over all samples, in double, in index order. A channel that
/// never varies gets scale 1, and a warning.
Normalization measure(const Dataset& data, std::vector<std::string>& warnings);

/// Crop and flip from `from` to `to`, images [H, W, C]; `to` is written in full.
void crop_and_flip(const Augmentation& augmentation, const tensor::Shape& shape, uint64_t seed, int64_t epoch, int64_t index,
                   std::span<const float> from, std::span<float> to);
void cutout(const Augmentation& augmentation, const tensor::Shape& shape, uint64_t seed, int64_t epoch, int64_t index,
            std::span<float> image);

}  // namespace gpipe::train
