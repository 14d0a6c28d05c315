// JPEG through libjpeg-turbo. The library reports errors by a hook that must not return, and its default ends the process;
// ours jumps back here. Nothing that has a destructor lives between setjmp and the jump.
#include "core/base/error.h"
#include "data/image.h"

#include <array>
#include <csetjmp>
#include <cstdio>
#include <jerror.h>
#include <jpeglib.h>

namespace gpipe::data {

namespace {

constexpr int most_scans = 500;  // a progressive file may ask for the whole picture again and again

// A block of 8x8 pixels takes at least one bit: its mean, in a progressive file.
constexpr int64_t pixels_a_byte = 8 * 64;

struct Hooks {
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  std::jmp_buf back{};
  std::array<char, JMSG_LENGTH_MAX> message{};
};

[[noreturn]] void jump_back(j_common_ptr info) {
  auto* hooks = static_cast<Hooks*>(info->client_data);
  info->err->format_message(info, hooks->message.data());
  std::longjmp(hooks->back, 1);
}

/// libjpeg only warns about a file that is cut off or damaged, and fills in grey. A few warnings are about sound pictures.
void on_message(j_common_ptr info, int level) {
  if (level >= 0) return;
  const int code = info->err->msg_code;
  if (code != JWRN_EXTRANEOUS_DATA && code != JWRN_ADOBE_XFORM && code != JWRN_JFIF_MAJOR) jump_back(info);
}

void on_progress(j_common_ptr info) {
  const auto* decoder = reinterpret_cast<j_decompress_ptr>(info);
  if (decoder->input_scan_number <= most_scans) return;
  auto* hooks = static_cast<Hooks*>(info->client_data);
  std::snprintf(hooks->message.data(), hooks->message.size(), "more than %d scans", most_scans);
  std::longjmp(hooks->back, 1);
}

class Decoder {
 public:
  explicit Decoder(std::span<const uint8_t> bytes) : bytes_(bytes) {
    info_.err = jpeg_std_error(&hooks_.errors);
    hooks_.errors.error_exit = jump_back;
    hooks_.errors.emit_message = on_message;
    info_.client_data = &hooks_;
    hooks_.progress.progress_monitor = on_progress;
  }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
  ~Decoder() { jpeg_destroy_decompress(&info_); }  // does nothing where nothing was created

  /// The steps; false, with message(), when the library gave up.
  bool read_header(bool grey) {
    if (setjmp(hooks_.back) != 0) return false;
    jpeg_create_decompress(&info_);  // clears all but err and client_data
    info_.progress = &hooks_.progress;
    jpeg_mem_src(&info_, bytes_.data(), bytes_.size());
    jpeg_read_header(&info_, TRUE);
    info_.out_color_space = grey ? JCS_GRAYSCALE : JCS_RGB;
    info_.dct_method = JDCT_ISLOW;
    return true;
  }
  bool read_pixels(uint8_t* to, size_t row_bytes) {
    if (setjmp(hooks_.back) != 0) return false;
    jpeg_start_decompress(&info_);
    while (info_.output_scanline < info_.output_height) {
      JSAMPROW row = to + info_.output_scanline * row_bytes;
      jpeg_read_scanlines(&info_, &row, 1);
    }
    jpeg_finish_decompress(&info_);
    return true;
  }

  int64_t height() const { return info_.image_height; }
  int64_t width() const { return info_.image_width; }
  const char* message() const { return hooks_.message.data(); }

 private:
  std::span<const uint8_t> bytes_;
  jpeg_decompress_struct info_{};
  Hooks hooks_;
};

}  // namespace

Image decode_jpeg(std::span<const uint8_t> bytes, int64_t channels, const std::string& file) {
  Decoder decoder(bytes);
  if (!decoder.read_header(channels == 1)) throw base::DataError("{}: not a usable JPEG: {}", file, decoder.message());
  const auto most = static_cast<int64_t>(bytes.size()) * pixels_a_byte;
  check_image_size(decoder.height(), decoder.width(), most, file);
  Image image{decoder.height(), decoder.width(), channels, {}};
  image.pixels.resize(static_cast<size_t>(image.height * image.width * channels));
  if (!decoder.read_pixels(image.pixels.data(), static_cast<size_t>(image.width * channels))) {
    throw base::DataError("{}: not a usable JPEG: {}", file, decoder.message());
  }
  return image;
}

}  // namespace gpipe::data
