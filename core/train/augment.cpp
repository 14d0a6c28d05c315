#include "core/train/augment.h"

#include "core/base/rng.h"

#include <algorithm>
#include <cmath>

namespace gpipe::train {

namespace {

// Elements of a sample's stream: fixed places, so that switching one augmentation on leaves the others' draws alone.
enum Draw : uint64_t { crop_y, crop_x, flip, cut_y, cut_x };

base::Philox draws(uint64_t seed, int64_t epoch, int64_t index) {
  return base::Philox(seed, base::Purpose::augment, static_cast<uint64_t>(epoch), static_cast<uint64_t>(index));
}

uint32_t bound(int64_t extent) { return static_cast<uint32_t>(extent); }

}  // namespace

void Normalization::apply(std::span<float> sample) const {
  const size_t channels = mean.size();
  if (channels == 1) {
    for (float& x : sample) x = (x - mean[0]) * scale[0];
    return;
  }
  for (size_t at = 0; at + channels <= sample.size(); at += channels) {
    for (size_t c = 0; c < channels; ++c) sample[at + c] = (sample[at + c] - mean[c]) * scale[c];
  }
}

Normalization measure(const Dataset& data, std::vector<std::string>& warnings) {
  const SampleSpec& spec = data.spec();
  const auto channels = static_cast<size_t>(spec.input.back());
  std::vector<float> sample(static_cast<size_t>(spec.input.elements()));
  std::vector<std::byte> target(static_cast<size_t>(spec.target.elements()) * sizeof(float));
  // Sums of differences to the first sample: squares of large, nearly equal numbers would cancel.
  std::vector<double> shift(channels), sum(channels), squares(channels);
  for (int64_t index = 0; index < data.size(); ++index) {
    data.read(index, std::as_writable_bytes(std::span(sample)), target);
    if (index == 0) std::copy_n(sample.begin(), channels, shift.begin());
    for (size_t at = 0; at < sample.size(); at += channels) {
      for (size_t c = 0; c < channels; ++c) {
        const double difference = static_cast<double>(sample[at + c]) - shift[c];
        sum[c] += difference;
        squares[c] += difference * difference;
      }
    }
  }
  const double count = static_cast<double>(data.size()) * static_cast<double>(sample.size() / channels);
  Normalization result;
  size_t constant = 0, first_constant = 0;
  for (size_t c = 0; c < channels; ++c) {
    const double mean = sum[c] / count;
    const double deviation = std::sqrt(std::max(0.0, squares[c] / count - mean * mean));
    const bool varies = squares[c] > 0 && deviation > 0 && std::isfinite(1.0F / static_cast<float>(deviation));
    if (!varies && constant++ == 0) first_constant = c;
    result.mean.push_back(static_cast<float>(shift[c] + mean));
    result.scale.push_back(varies ? 1.0F / static_cast<float>(deviation) : 1.0F);
  }
  if (constant > 0) {
    warnings.push_back(fmt::format("{}: {} of {} channels never vary (the first is channel {}); they are centred but not scaled",
                                   data.describe(), constant, channels, first_constant));
  }
  return result;
}

void crop_and_flip(const Augmentation& augmentation, const tensor::Shape& shape, uint64_t seed, int64_t epoch, int64_t index,
                   std::span<const float> from, std::span<float> to) {
  const int64_t height = shape[0], width = shape[1], channels = shape[2];
  const base::Philox random = draws(seed, epoch, index);
  const int64_t padding = augmentation.random_crop;
  const int64_t top = padding > 0 ? random.below(crop_y, bound(2 * padding + 1)) - padding : 0;
  const int64_t left = padding > 0 ? random.below(crop_x, bound(2 * padding + 1)) - padding : 0;
  const bool mirrored = augmentation.horizontal_flip && (random.word(flip) >> 31) != 0;
  for (int64_t y = 0; y < height; ++y) {
    float* row = to.data() + y * width * channels;
    const int64_t source_y = y + top;
    if (source_y < 0 || source_y >= height) {
      std::fill_n(row, width * channels, 0.0F);
      continue;
    }
    for (int64_t x = 0; x < width; ++x) {
      const int64_t source_x = (mirrored ? width - 1 - x : x) + left;
      float* pixel = row + x * channels;
      if (source_x < 0 || source_x >= width) {
        std::fill_n(pixel, channels, 0.0F);
      } else {
        std::copy_n(from.data() + (source_y * width + source_x) * channels, channels, pixel);
      }
    }
  }
}

void cutout(const Augmentation& augmentation, const tensor::Shape& shape, uint64_t seed, int64_t epoch, int64_t index,
            std::span<float> image) {
  const int64_t height = shape[0], width = shape[1], channels = shape[2], side = augmentation.cutout;
  const base::Philox random = draws(seed, epoch, index);
  const int64_t top = static_cast<int64_t>(random.below(cut_y, bound(height))) - side / 2;
  const int64_t left = static_cast<int64_t>(random.below(cut_x, bound(width))) - side / 2;
  const int64_t from = std::max<int64_t>(left, 0), to = std::min(left + side, width);
  for (int64_t y = std::max<int64_t>(top, 0); y < std::min(top + side, height); ++y) {
    if (to > from) std::fill_n(image.data() + (y * width + from) * channels, (to - from) * channels, 0.0F);
  }
}

}  // namespace gpipe::train
