#include "data/image.h"

#include "core/base/error.h"

#include <algorithm>
#include <cmath>

namespace gpipe::data {

namespace {

/// What one output place takes from a row of `from` places.
struct Taps {
  int64_t first = 0;
  std::vector<float> weights;  // their sum is 1
};

std::vector<Taps> taps_for(int64_t from, int64_t to) {
  const double step = static_cast<double>(from) / static_cast<double>(to);
  const double reach = std::max(step, 1.0);
  std::vector<Taps> all;
  for (int64_t i = 0; i < to; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * step;
    const auto first = std::max<int64_t>(static_cast<int64_t>(std::floor(centre - reach)), 0);
    const auto last = std::min<int64_t>(static_cast<int64_t>(std::ceil(centre + reach)), from);
    Taps taps;
    taps.first = first;
    double sum = 0;
    for (int64_t j = first; j < last; ++j) {
      const double weight = std::max(0.0, 1.0 - std::abs(static_cast<double>(j) + 0.5 - centre) / reach);
      taps.weights.push_back(static_cast<float>(weight));
      sum += weight;
    }
    for (float& weight : taps.weights) weight /= static_cast<float>(sum);
    all.push_back(std::move(taps));
  }
  return all;
}

uint8_t to_byte(float value) { return static_cast<uint8_t>(std::clamp(value + 0.5F, 0.0F, 255.0F)); }

}  // namespace

void check_image_size(int64_t height, int64_t width, int64_t can_hold, const std::string& file) {
  if (height < 1 || width < 1 || height > most_pixels / width) {
    throw base::DataError("{}: {} x {} pixels, the limit is {} in all", file, width, height, most_pixels);
  }
  if (height * width > can_hold) {
    throw base::DataError("{}: {} x {} pixels are more than the file can hold; it is cut off or forged", file, width, height);
  }
}

Image decode_image(std::span<const uint8_t> bytes, int64_t channels, const std::string& file) {
  if (bytes.size() >= 3 && bytes[0] == 0xFF && bytes[1] == 0xD8 && bytes[2] == 0xFF) return decode_jpeg(bytes, channels, file);
  if (bytes.size() >= 4 && bytes[0] == 0x89 && bytes[1] == 'P' && bytes[2] == 'N' && bytes[3] == 'G') {
    return decode_png(bytes, channels, file);
  }
  throw base::DataError("{}: neither JPEG nor PNG ({} bytes)", file, bytes.size());
}

void resize_image(const Image& from, int64_t height, int64_t width, std::span<uint8_t> to) {
  GP_CHECK_EQ(static_cast<int64_t>(to.size()), height * width * from.channels);
  if (from.height == height && from.width == width) {
    std::copy(from.pixels.begin(), from.pixels.end(), to.begin());
    return;
  }
  const int64_t channels = from.channels;
  const std::vector<Taps> across = taps_for(from.width, width), down = taps_for(from.height, height);
  std::vector<float> rows(static_cast<size_t>(from.height * width * channels));
  for (int64_t y = 0; y < from.height; ++y) {
    const uint8_t* source = from.pixels.data() + y * from.width * channels;
    float* row = rows.data() + y * width * channels;
    for (int64_t x = 0; x < width; ++x) {
      const Taps& taps = across[static_cast<size_t>(x)];
      for (int64_t c = 0; c < channels; ++c) {
        float sum = 0;
        for (size_t k = 0; k < taps.weights.size(); ++k) {
          sum += taps.weights[k] * static_cast<float>(source[(taps.first + static_cast<int64_t>(k)) * channels + c]);
        }
        row[x * channels + c] = sum;
      }
    }
  }
  std::vector<float> sums(static_cast<size_t>(width * channels));
  for (int64_t y = 0; y < height; ++y) {
    const Taps& taps = down[static_cast<size_t>(y)];
    std::fill(sums.begin(), sums.end(), 0.0F);
    for (size_t k = 0; k < taps.weights.size(); ++k) {
      const float* row = rows.data() + (taps.first + static_cast<int64_t>(k)) * width * channels;
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += taps.weights[k] * row[i];
    }
    for (size_t i = 0; i < sums.size(); ++i) to[static_cast<size_t>(y * width * channels) + i] = to_byte(sums[i]);
  }
}

}  // namespace gpipe::data
