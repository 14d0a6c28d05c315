// Pictures: JPEG and PNG to bytes [H, W, C], and resizing. What a file may hold is limited before memory is taken: at most
// 64 million pixels, and for JPEG 500 scans. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace gpipe::data {

struct Image {
  int64_t height = 0, width = 0, channels = 0;
  std::vector<uint8_t> pixels;  // [height, width, channels]
};

constexpr int64_t most_pixels = int64_t{1} << 26;

/// JPEG or PNG, told by its first bytes, as 1 channel (grey) or 3 (red, green, blue). DataError naming `file`: not such a
/// file, cut off, a wrong checksum, too large.
///   colour to grey: 0.299 R + 0.587 G + 0.114 B; grey to colour: three times the same
///   16 bits a channel: scaled to 8; palette: looked up; alpha: dropped
Image decode_image(std::span<const uint8_t> bytes, int64_t channels, const std::string& file);

Image decode_jpeg(std::span<const uint8_t> bytes, int64_t channels, const std::string& file);
Image decode_png(std::span<const uint8_t> bytes, int64_t channels, const std::string& file);
/// DataError for more pixels than the limit, or than `can_hold`: those that a file of its length can hold at best.
void check_image_size(int64_t height, int64_t width, int64_t can_hold, const std::string& file);

/// Bilinear with pixel centres at half numbers; when shrinking, the triangle is as wide as the step, so that no pixel is
/// left out (what Pillow calls BILINEAR). Rounded to the nearest byte. The same size is a copy.
void resize_image(const Image& from, int64_t height, int64_t width, std::span<uint8_t> to);

}  // namespace gpipe::data
