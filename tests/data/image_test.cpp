// Pictures: decoded values, the rules of conversion, resizing, and the rows D32 of bad files.
#include "data/image.h"

#include "tests/data/support.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <jpeglib.h>
#include <zlib.h>

using namespace gpipe;
using data::Image;

namespace {

using Bytes = std::vector<uint8_t>;

void put_u32(Bytes& to, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) to.push_back(static_cast<uint8_t>(value >> shift));
}

void put_chunk(Bytes& to, const char* type, const Bytes& content) {
  put_u32(to, static_cast<uint32_t>(content.size()));
  const size_t begin = to.size();
  to.insert(to.end(), type, type + 4);
  to.insert(to.end(), content.begin(), content.end());
  put_u32(to, static_cast<uint32_t>(crc32(0, to.data() + begin, static_cast<uInt>(to.size() - begin))));
}

enum Colour : uint8_t { grey = 0, rgb = 2, palette = 3, grey_alpha = 4, rgba = 6 };

/// A PNG of these rows (filter bytes are added).
Bytes png(uint32_t width, uint32_t height, uint8_t depth, Colour colour, const std::vector<Bytes>& rows,
          const Bytes& colours = {}, const Bytes& alphas = {}) {
  Bytes file{0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'}, header, raw;
  put_u32(header, width);
  put_u32(header, height);
  header.insert(header.end(), {depth, colour, 0, 0, 0});
  put_chunk(file, "IHDR", header);
  if (!colours.empty()) put_chunk(file, "PLTE", colours);
  if (!alphas.empty()) put_chunk(file, "tRNS", alphas);
  for (const Bytes& row : rows) {
    raw.push_back(0);
    raw.insert(raw.end(), row.begin(), row.end());
  }
  Bytes packed(compressBound(raw.size()));
  uLongf size = packed.size();
  compress(packed.data(), &size, raw.data(), raw.size());
  packed.resize(size);
  put_chunk(file, "IDAT", packed);
  put_chunk(file, "IEND", {});
  return file;
}

/// A JPEG of one colour.
Bytes jpeg(int width, int height, std::array<uint8_t, 3> colour, bool progressive = false) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &memory, &size);
  info.image_width = static_cast<JDIMENSION>(width);
  info.image_height = static_cast<JDIMENSION>(height);
  info.input_components = 3;
  info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 95, TRUE);
  if (progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  Bytes row;
  for (int x = 0; x < width; ++x) row.insert(row.end(), colour.begin(), colour.end());
  JSAMPROW pointer = row.data();
  while (info.next_scanline < info.image_height) jpeg_write_scanlines(&info, &pointer, 1);
  jpeg_finish_compress(&info);
  Bytes file(memory, memory + size);
  jpeg_destroy_compress(&info);
  std::free(memory);
  return file;
}

Bytes pixels(const Bytes& file, int64_t channels) { return data::decode_image(file, channels, "x").pixels; }

std::string refusal(const Bytes& file) {
  try {
    data::decode_image(file, 3, "x.png");
  } catch (const base::DataError& error) { return error.what(); }
  return "accepted";
}

}  // namespace

TEST_CASE("PNG: colour, grey, palette, alpha and 16 bits by the stated rules") {
  CHECK(pixels(png(2, 1, 8, rgb, {{1, 2, 3, 250, 251, 252}}), 3) == Bytes{1, 2, 3, 250, 251, 252});
  CHECK(pixels(png(2, 1, 8, rgb, {{10, 20, 30, 255, 0, 0}}), 1) == Bytes{18, 76});
  CHECK(pixels(png(2, 1, 8, grey, {{7, 9}}), 3) == Bytes{7, 7, 7, 9, 9, 9});
  CHECK(pixels(png(8, 1, 1, grey, {{0b10100000}}), 1) == Bytes{255, 0, 255, 0, 0, 0, 0, 0});
  CHECK(pixels(png(2, 1, 8, palette, {{1, 0}}, {1, 2, 3, 4, 5, 6}, {0, 128}), 3) == Bytes{4, 5, 6, 1, 2, 3});
  CHECK(pixels(png(1, 1, 8, rgba, {{9, 8, 7, 0}}), 3) == Bytes{9, 8, 7});
  CHECK(pixels(png(1, 1, 8, grey_alpha, {{9, 0}}), 1) == Bytes{9});
  CHECK(pixels(png(2, 1, 16, grey, {{0xFF, 0xFF, 0x80, 0x80}}), 1) == Bytes{255, 128});
}

TEST_CASE("JPEG: a picture of one colour stays it, plain and progressive, in colour and grey") {
  for (const bool progressive : {false, true}) {
    const Image image = data::decode_image(jpeg(17, 9, {200, 100, 50}, progressive), 3, "x");
    CHECK(image.width == 17);
    CHECK(image.height == 9);
    for (size_t i = 0; i < image.pixels.size(); i += 3) {
      CHECK(std::abs(image.pixels[i] - 200) <= 2);
      CHECK(std::abs(image.pixels[i + 1] - 100) <= 2);
      CHECK(std::abs(image.pixels[i + 2] - 50) <= 2);
    }
  }
  CHECK(std::abs(pixels(jpeg(8, 8, {200, 100, 50}), 1)[0] - 124) <= 2);
}

TEST_CASE("resizing: same size copies, halving averages with the triangle, enlarging interpolates, a flat picture stays flat") {
  const auto resized = [](const Image& image, int64_t height, int64_t width) {
    Bytes to(static_cast<size_t>(height * width * image.channels));
    data::resize_image(image, height, width, to);
    return to;
  };
  const Image ramp{1, 4, 1, {0, 80, 160, 240}};
  CHECK(resized(ramp, 1, 4) == ramp.pixels);
  // Triangle of half-width 2 at places 1 and 3: weights 3 3 1 over pixels 0..2, and the mirror image.
  CHECK(resized(ramp, 1, 2) == Bytes{57, 183});
  CHECK(resized(Image{1, 2, 1, {0, 100}}, 1, 4) == Bytes{0, 25, 75, 100});
  const Image flat{5, 7, 3, Bytes(105, 93)};
  for (const auto& [h, w] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {3, 11}, {32, 2}}) {
    for (const uint8_t value : resized(flat, h, w)) CHECK(value == 93);
  }
}

TEST_CASE("D32: damaged and forged pictures are refused with a reason") {
  const Bytes good = png(4, 2, 8, rgb, {Bytes(12, 5), Bytes(12, 6)});
  for (size_t length = 0; length < good.size(); ++length) {
    INFO("PNG cut at " << length);
    CHECK(refusal({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(length)}) != "accepted");
  }
  for (size_t at = 8; at < good.size(); ++at) {
    Bytes bad = good;
    bad[at] ^= 0x10;
    INFO("PNG changed at " << at);
    CHECK(refusal(bad) != "accepted");
  }
  test::check_contains(refusal(png(65535, 65535, 8, rgb, {{1, 2, 3}})), "65535 x 65535 pixels, the limit is");
  test::check_contains(refusal(png(8000, 8000, 8, rgb, {{1, 2, 3}})), "more than the file can hold");
  test::check_contains(refusal({'G', 'I', 'F', '8', '9', 'a'}), "neither JPEG nor PNG");
  test::check_contains(refusal({}), "neither JPEG nor PNG (0 bytes)");

  const Bytes photo = jpeg(40, 40, {1, 200, 3});
  for (size_t length = 0; length + 2 < photo.size(); length += 7) {
    INFO("JPEG cut at " << length);
    CHECK(refusal({photo.begin(), photo.begin() + static_cast<std::ptrdiff_t>(length)}) != "accepted");
  }
  Bytes huge = photo;
  for (size_t i = 0; i + 8 < huge.size(); ++i) {
    if (huge[i] == 0xFF && huge[i + 1] == 0xC0) huge[i + 5] = huge[i + 6] = huge[i + 7] = huge[i + 8] = 0xFF;  // its size
  }
  test::check_contains(refusal(huge), "65500");  // the library's own limit, below ours of the product
}

TEST_CASE("no change of a byte of a JPEG is a crash") {
  const Bytes photo = jpeg(16, 16, {120, 3, 77}, true);
  for (size_t at = 0; at < photo.size(); ++at) {
    for (const int value : {0x00, 0xFF, 0xD9}) {
      Bytes bad = photo;
      bad[at] = static_cast<uint8_t>(value);
      refusal(bad);
    }
  }
}

TEST_CASE("an image folder: classes in the order of their names, pictures resized, other files passed over") {
  const test::TempFolder folder;
  for (const char* name : {"b", "a", ".hidden"}) std::filesystem::create_directory(folder / name);
  const auto write = [&](const std::string& name, const Bytes& content) {
    test::put(folder / name, {reinterpret_cast<const char*>(content.data()), content.size()});
  };
  write("a/2.PNG", png(1, 1, 8, grey, {{40}}));
  write("a/1.png", png(2, 2, 8, rgb, {Bytes(6, 10), Bytes(6, 20)}));
  write("b/x.jpeg", jpeg(8, 8, {255, 255, 255}));
  test::put(folder / "a/notes.txt", "no picture");
  for (const char* cache : {"true", "false"}) {
    const auto set = test::open("image_folder", test::tree({{"path", test::word(folder.path().string())},
                                                            {"size", test::list({1, 2})},
                                                            {"channels", test::word("grey")},
                                                            {"cache", test::word(cache)}}));
    CHECK(set->size() == 3);
    CHECK(set->spec().class_names == std::vector<std::string>{"a", "b"});
    CHECK(test::sample(*set, 0).input == std::vector<float>{15, 15});
    CHECK(test::sample(*set, 1).input == std::vector<float>{40, 40});
    CHECK(test::sample(*set, 2).input == std::vector<float>{255, 255});
    CHECK(test::sample(*set, 2).label == 1);
    set->recheck();
  }
  write("b/y.png", {1, 2, 3});
  const auto arguments = test::tree({{"path", test::word(folder.path().string())}, {"size", test::list({2, 2})}});
  test::check_contains(test::complaint<base::DataError>("image_folder", arguments), "b/y.png: neither JPEG nor PNG");
}

TEST_CASE("the image folder of the CIFAR-10 share is read, and looks like the records of the share") {
  const auto images = test::shared("datasets/cifar10-images");
  const auto records = test::shared("datasets/cifar10/data_batch_1.bin");
  if (!images || !records) return;
  const auto open = [&](const char* part) {
    return test::open("image_folder",
                      test::tree({{"path", test::word((*images / part).string())}, {"size", test::list({32, 32})}}));
  };
  const auto train = open("train"), validation = open("test");
  CHECK(train->size() == 400);
  CHECK(validation->size() == 100);
  CHECK(train->spec().class_names == validation->spec().class_names);
  const auto binary = test::open("cifar", test::tree({{"files", test::words({records->string()})}}));
  CHECK(binary->size() == 10000);
  CHECK(binary->spec().input == train->spec().input);
  const auto mean = [](const train::Dataset& set, size_t channel) {
    double sum = 0;
    for (int64_t i = 0; i < 400; ++i) {
      const auto one = test::sample(set, i);
      for (size_t at = channel; at < one.input.size(); at += 3) sum += static_cast<double>(one.input[at]) / 1024 / 400;
    }
    return sum;
  };
  for (size_t channel = 0; channel < 3; ++channel) CHECK(std::abs(mean(*train, channel) - mean(*binary, channel)) < 12);
}
