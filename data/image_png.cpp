// PNG through libpng, with its errors by longjmp as for JPEG. All checksums count, those of side chunks too.
#include "core/base/error.h"
#include "data/image.h"

#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <png.h>

namespace gpipe::data {

namespace {

class Decoder {
 public:
  explicit Decoder(std::span<const uint8_t> bytes) : left_(bytes) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, on_warning);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
    if (info_ == nullptr) throw base::MemoryError("no memory to decode a PNG");
  }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
  ~Decoder() { png_destroy_read_struct(&png_, &info_, nullptr); }

  /// Each step: false, with message(), when the library gave up.
  bool read_header() {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_read_fn(png_, this, on_read);
    png_set_crc_action(png_, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
    png_set_user_limits(png_, 1U << 26, 1U << 26);  // the product is checked by the caller
    png_set_chunk_cache_max(png_, 64);
    png_set_chunk_malloc_max(png_, png_alloc_size_t{1} << 23);
    png_read_info(png_, info_);
    return true;
  }
  /// To 8 bits and to grey or colour as the file has it; says how many channels that is.
  bool choose_form(int64_t& channels) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_expand(png_);    // palette to colour, fewer than 8 bits to 8, transparency to alpha
    png_set_scale_16(png_);  // 16 bits to 8
    png_set_strip_alpha(png_);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    channels = png_get_channels(png_, info_);
    return true;
  }
  bool read_pixels(png_bytepp rows) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_read_image(png_, rows);
    png_read_end(png_, nullptr);
    return true;
  }

  int64_t height() const { return png_get_image_height(png_, info_); }
  int64_t width() const { return png_get_image_width(png_, info_); }
  int64_t bits_per_pixel() const { return int64_t{png_get_bit_depth(png_, info_)} * png_get_channels(png_, info_); }
  const char* message() const { return message_.data(); }

 private:
  [[noreturn]] static void on_error(png_structp png, png_const_charp text) {
    auto* self = static_cast<Decoder*>(png_get_error_ptr(png));
    std::snprintf(self->message_.data(), self->message_.size(), "%s", text);
    png_longjmp(png, 1);
  }
  static void on_warning(png_structp, png_const_charp) {}
  static void on_read(png_structp png, png_bytep to, size_t count) {
    auto* self = static_cast<Decoder*>(png_get_io_ptr(png));
    if (count > self->left_.size()) png_error(png, "the file is cut off");
    std::memcpy(to, self->left_.data(), count);
    self->left_ = self->left_.subspan(count);
  }

  std::span<const uint8_t> left_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::array<char, 200> message_{};
};

Image to_channels(Image image, int64_t channels) {
  if (image.channels == channels) return image;
  Image result{image.height, image.width, channels, {}};
  const auto count = static_cast<size_t>(image.height * image.width);
  result.pixels.resize(count * static_cast<size_t>(channels));
  for (size_t i = 0; i < count; ++i) {
    if (channels == 3) {
      for (size_t c = 0; c < 3; ++c) result.pixels[3 * i + c] = image.pixels[i];
    } else {
      const uint8_t* p = &image.pixels[3 * i];
      result.pixels[i] = static_cast<uint8_t>((299 * p[0] + 587 * p[1] + 114 * p[2] + 500) / 1000);
    }
  }
  return result;
}

}  // namespace

Image decode_png(std::span<const uint8_t> bytes, int64_t channels, const std::string& file) {
  Decoder decoder(bytes);
  const auto fail = [&] { throw base::DataError("{}: not a usable PNG: {}", file, decoder.message()); };
  if (!decoder.read_header()) fail();
  constexpr int64_t deflate_limit = 1032;
  const int64_t most = static_cast<int64_t>(bytes.size()) * deflate_limit * 8 / decoder.bits_per_pixel();
  check_image_size(decoder.height(), decoder.width(), most, file);
  Image image{decoder.height(), decoder.width(), 0, {}};
  if (!decoder.choose_form(image.channels)) fail();
  GP_CHECK(image.channels == 1 || image.channels == 3);
  const auto row_bytes = static_cast<size_t>(image.width * image.channels);
  image.pixels.resize(static_cast<size_t>(image.height) * row_bytes);
  std::vector<png_bytep> rows;
  for (int64_t y = 0; y < image.height; ++y) rows.push_back(image.pixels.data() + static_cast<size_t>(y) * row_bytes);
  if (!decoder.read_pixels(rows.data())) fail();
  return to_channels(std::move(image), channels);
}

}  // namespace gpipe::data
