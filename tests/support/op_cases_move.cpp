// Cases of what moves numbers to other places, of resampling, and of the transposed convolution.
#include "tests/support/op_cases.h"

#include <fmt/format.h>

namespace gpipe::test {
namespace {

using tensor::Shape;

void add_transposed_convolutions(std::vector<OpCase>& cases) {
  const auto add = [&](const char* arguments, Shape image, std::vector<int64_t> micro_batches, bool large = false) {
    cases.push_back({"conv_transpose2d", arguments, {image}, std::move(micro_batches), large});
  };
  add("{out_channels: 1, kernel_size: 1}", {1, 1, 1}, {1});
  add("{out_channels: 4, kernel_size: 1}", {3, 5, 3}, {2});
  add("{out_channels: 2, kernel_size: 3}", {3, 3, 2}, {1});
  add("{out_channels: 2, kernel_size: 2, stride: 2}", {3, 5, 3}, {2, 1});
  add("{out_channels: 3, kernel_size: 3, stride: 2, padding: 1, output_padding: 1}", {4, 3, 2}, {2});
  add("{out_channels: 3, kernel_size: 3, stride: 2, padding: 1}", {4, 3, 2}, {1, 1});
  add("{out_channels: 3, kernel_size: 4, stride: 2, padding: 1, bias: false}", {3, 5, 4}, {2, 1});
  add("{out_channels: 2, kernel_size: [3, 2], stride: [1, 2]}", {5, 4, 3}, {2});
  add("{out_channels: 2, kernel_size: [1, 3], padding: [0, 1]}", {3, 5, 2}, {3, 2});
  add("{out_channels: 2, kernel_size: 2, stride: 3}", {3, 4, 2}, {2});  // stride > kernel
  add("{out_channels: 2, kernel_size: 2, stride: 3, output_padding: 2}", {3, 4, 2}, {2});
  add("{out_channels: 2, kernel_size: 2, stride: [3, 2], output_padding: [1, 0]}", {3, 4, 1}, {1});
  add("{out_channels: 2, kernel_size: 3, dilation: 2}", {3, 4, 2}, {1});
  add("{out_channels: 2, kernel_size: 3, dilation: 2, padding: 2}", {5, 5, 2}, {2, 1});
  add("{out_channels: 2, kernel_size: 3, dilation: [1, 3], stride: 2, padding: 1}", {3, 4, 2}, {1});
  add("{out_channels: 4, kernel_size: 3, groups: 2, padding: 1}", {5, 3, 4}, {2});
  add("{out_channels: 6, kernel_size: 3, groups: 3, padding: 1}", {4, 5, 3}, {1});
  add("{out_channels: 4, kernel_size: 3, groups: 4, padding: 1, bias: false}", {5, 5, 4}, {2, 1});  // depthwise
  add("{out_channels: 2, kernel_size: 3, groups: 2, stride: 2}", {3, 3, 6}, {1});
  add("{out_channels: 2, kernel_size: 5, padding: 2}", {3, 3, 2}, {1});
  add("{out_channels: 1, kernel_size: 4, stride: 4}", {2, 3, 5}, {2});
  add("{out_channels: 2, kernel_size: 3, dilation: 3, stride: 2, output_padding: 2, padding: 2}", {3, 4, 2}, {2});
  add("{out_channels: 2, kernel_size: 3, dilation: 3, output_padding: [2, 1], padding: [2, 3]}", {3, 4, 2}, {2});
  add("{out_channels: 32, kernel_size: 2, stride: 2}", {9, 7, 64}, {2, 1}, true);
  add("{out_channels: 16, kernel_size: 3, stride: 2, padding: 1, output_padding: 1}", {13, 11, 30}, {3, 2}, true);
  add("{out_channels: 32, kernel_size: 3, padding: 1, groups: 4}", {9, 9, 32}, {2, 1}, true);
}

void add_resampling(std::vector<OpCase>& cases) {
  for (const char* mode : {"", ", mode: bilinear", ", mode: bilinear, align_corners: true"})
    for (const char* size : {"scale_factor: 2", "scale_factor: [3, 2]", "scale_factor: 1.7", "scale_factor: 0.5", "size: [7, 4]",
                             "size: 5", "size: 1", "scale_factor: 1"})
      for (const auto& [image, micros] :
           {std::pair(Shape{3, 5, 2}, std::vector<int64_t>{2, 1}), {Shape{5, 4, 3}, {1}}, {Shape{2, 2, 17}, {2}}})
        cases.push_back({"upsample", fmt::format("{{{}{}}}", size, mode), {image}, micros});
  for (const char* mode : {"nearest", "bilinear"})
    cases.push_back({"upsample", fmt::format("{{scale_factor: 2, mode: {}}}", mode), {{17, 13, 33}}, {3, 2}, true});
}

void add_margins(std::vector<OpCase>& cases) {
  const auto add = [&](const char* type, const char* arguments, const std::vector<Shape>& shapes) {
    for (const Shape& shape : shapes)
      for (const std::vector<int64_t>& micros : {std::vector<int64_t>{2, 1}, {1, 1, 1}})
        cases.push_back({type, arguments, {shape}, micros, shape.elements() > 1000});
  };
  const std::vector<Shape> images = {{3, 3, 1}, {5, 4, 3}, {3, 7, 16}}, sequences = {{3, 1}, {7, 5}};
  add("pad", "{padding: 1}", images);
  add("pad", "{padding: [0, 1, 0, 1]}", images);
  add("pad", "{padding: [2, 0, 1, 3], value: -0.5}", images);
  add("pad", "{padding: [-1, 1, -1, 1]}", images);
  add("pad", "{padding: [-1, 1, -1, 1], value: 2}",
      {{1, 1, 3}, {1, 4, 2}, {3, 1, 2}});  // nothing of the input is left, or little
  add("pad", "{padding: [1, 2], value: 3}", sequences);
  add("pad", "{padding: 2}", sequences);
  add("pad", "{padding: 0}", {{3, 2, 2}});
  add("pad", "{padding: [3, 1, 0, 2], value: 1}", {{33, 17, 19}});
  add("crop", "{cropping: 1}", images);
  add("crop", "{cropping: [1, 0, 1, 0]}", images);
  add("crop", "{cropping: [0, 2, 1, 1]}", images);
  add("crop", "{size: [2, 3]}", images);
  add("crop", "{size: 2}", sequences);
  add("crop", "{cropping: [1, 0]}", sequences);
  add("crop", "{size: [18, 16]}", {{33, 17, 19}});
}

void add_axes(std::vector<OpCase>& cases) {
  const auto add = [&](const char* type, const char* arguments, const Shape& shape) {
    cases.push_back({type, arguments, {shape}, {2, 1}, shape.elements() > 1000});
  };
  for (const char* axes : {"[0, 1, 2]", "[0, 2, 1]", "[1, 0, 2]", "[1, 2, 0]", "[2, 0, 1]", "[2, 1, 0]", "[-1, -3, -2]"})
    for (const Shape& shape : {Shape{3, 5, 2}, Shape{1, 7, 17}, Shape{4, 1, 3}, Shape{19, 33, 18}})
      add("transpose", fmt::format("{{axes: {}}}", axes).c_str(), shape);
  add("transpose", "{swap: [0, 1]}", {5, 7});
  add("transpose", "{swap: [-1, 0]}", {3, 4, 5});
  add("transpose", "{swap: [0, 0]}", {5});
  add("transpose", "{axes: [3, 1, 0, 2]}", {2, 3, 4, 3});
  add("transpose", "{axes: [4, 2, 0, 1, 3]}", {2, 3, 2, 3, 2});
  add("transpose", "{swap: [0, 1]}", {130, 70});

  for (const Shape& shape : {Shape{3, 5, 6}, Shape{4, 3, 17}, Shape{7, 4}, Shape{9}})
    for (const char* range : {"{begin: 1}", "{end: 2}", "{begin: -2}", "{begin: 1, end: -1}", "{axis: 0, begin: 1, end: 3}",
                              "{axis: 0, end: -1}", "{axis: 0}"})
      add("slice", range, shape);
  add("slice", "{axis: 1, begin: -3, end: -1}", {4, 5, 3});
  add("slice", "{axis: -2, begin: 2, end: 3}", {4, 5, 3});
  add("slice", "{begin: 3, end: 20}", {33, 17, 35});

  add("reshape", "{shape: [2, 15]}", {5, 3, 2});
  add("reshape", "{shape: 30}", {5, 3, 2});
  add("reshape", "{shape: [-1, 3, 2, 1, 1]}", {5, 3, 2});
  add("reshape", "{shape: [6, -1]}", {5, 3, 2});
}

}  // namespace

void add_move_cases(std::vector<OpCase>& cases) {
  add_transposed_convolutions(cases);
  add_resampling(cases);
  add_margins(cases);
  add_axes(cases);
}

}  // namespace gpipe::test
