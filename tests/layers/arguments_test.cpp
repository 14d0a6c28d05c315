// Arguments and shapes that layers refuse, and what parameters they ask for.
#include "core/base/error.h"
#include "tests/support/node_run.h"

#include <doctest/doctest.h>

#include <cmath>

using namespace gpipe;
using namespace gpipe::test;

namespace {

std::string problems_of(const std::string& type, const std::string& arguments) {
  const OpCase c{type, arguments, {}};
  base::Problems problems;
  const auto layer = layer_type(type).make(c.tree(), type, problems);
  CHECK((layer == nullptr) == !problems.empty());
  std::string text;
  for (const std::string& line : problems.errors()) text += line + "\n";
  return text;
}

std::string shape_error(const std::string& type, const std::string& arguments, const std::vector<tensor::Shape>& inputs) {
  try {
    make_layer_of({type, arguments, inputs})->output_shape(inputs);
  } catch (const base::ConfigError& error) { return error.what(); }
  FAIL_CHECK("no error for " << type << " " << arguments);
  return "";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

graph::Init weight_init(const std::string& type, const std::string& arguments, const tensor::Shape& input) {
  const std::vector<tensor::Shape> inputs = {input};
  return make_layer_of({type, arguments, inputs})->parameters(inputs)[0].init;
}

}  // namespace

TEST_CASE("wrong arguments are reported with their path, all at once") {
  CHECK(contains(problems_of("conv2d", "{}"), "out_channels"));
  CHECK(contains(problems_of("conv2d", "{}"), "kernel_size"));
  CHECK(contains(problems_of("conv2d", "{out_channels: 2, kernel_size: 3, padding: sane}"), "'sane'"));
  CHECK(contains(problems_of("conv2d", "{out_channels: 2, kernel_size: 3, padding: [1, 2, 3]}"), "3 numbers"));
  CHECK(contains(problems_of("conv2d", "{out_channels: 2, kernel_size: [1, 2, 3]}"), "3 numbers"));
  CHECK(contains(problems_of("conv2d", "{out_channels: 0, kernel_size: 3}"), "conv2d.out_channels"));
  CHECK(contains(problems_of("conv2d", "{out_channels: 2, kernel_size: 3, init: kaimin_normal}"), "kaiming_normal"));
  CHECK(contains(problems_of("linear", "{out_features: 3, units: 2}"), "units"));
  CHECK(contains(problems_of("relu", "{slope: 1}"), "slope"));
  CHECK(contains(problems_of("dropout", "{p: 1}"), "dropout.p"));
  CHECK(contains(problems_of("gelu", "{approximate: erf}"), "approximate"));
  CHECK(contains(problems_of("max_pool2d", "{kernel_size: 2, count_include_pad: true}"), "count_include_pad"));
  CHECK(problems_of("max_pool2d", "{kernel_size: 2, stride:}").empty());
  CHECK(problems_of("relu", "").empty());
  CHECK(contains(problems_of("upsample", "{}"), "neither"));
  CHECK(contains(problems_of("upsample", "{size: 3, scale_factor: 2}"), "both"));
  CHECK(contains(problems_of("upsample", "{scale_factor: [1, 2, 3]}"), "3 numbers"));
  CHECK(contains(problems_of("upsample", "{scale_factor: 0}"), "scale_factor"));
  CHECK(contains(problems_of("upsample", "{scale_factor: 2, align_corners: true}"), "align_corners"));
  CHECK(contains(problems_of("crop", "{cropping: 1, size: 2}"), "both"));
  CHECK(contains(problems_of("transpose", "{swap: [0, 1, 2]}"), "two axes"));
  CHECK(contains(problems_of("transpose", "{}"), "neither"));
  CHECK(contains(problems_of("reshape", "{shape: [-1, 2, -1]}"), "one -1"));
  CHECK(contains(problems_of("reshape", "{shape: [0, 2]}"), "above 0"));
  CHECK(contains(problems_of("slice", "{end: two}"), "slice.end"));
  CHECK(contains(problems_of("clip", "{}"), "none"));
  CHECK(contains(problems_of("clip", "{min: 0, magnitude: 1}"), "both kinds"));
  CHECK(contains(problems_of("clip", "{min: 2, max: 1}"), "min <= max"));
  CHECK(contains(problems_of("clip", "{magnitude: -1}"), "magnitude"));
  CHECK(contains(problems_of("scale", "{}"), "neither"));
  CHECK(contains(problems_of("scale", "{factor: 2, learned: channels}"), "both"));
  CHECK(contains(problems_of("scale", "{factor: 2, init: 1}"), "scale.init"));
  CHECK(contains(problems_of("drop_path", "{keep: 0}"), "keep"));
  CHECK(contains(problems_of("conv_transpose2d", "{out_channels: 2, kernel_size: 3, stride: 2, output_padding: 2}"),
                 "stride of 2"));
  CHECK(contains(problems_of("conv_transpose2d", "{out_channels: 2, kernel_size: 3, dilation: 3, output_padding: 2}"),
                 "as much padding"));
}

TEST_CASE("shapes that do not fit are refused with both shapes") {
  const std::string kernel = shape_error("conv2d", "{out_channels: 2, kernel_size: 9}", {{5, 7, 3}});
  CHECK(contains(kernel, "[9, 9]"));
  CHECK(contains(kernel, "[5, 7, 3]"));
  CHECK(contains(shape_error("conv2d", "{out_channels: 2, kernel_size: 1}", {{10}}), "[10]"));
  CHECK(contains(shape_error("conv2d", "{out_channels: 4, kernel_size: 1, groups: 2}", {{4, 4, 3}}), "[4, 4, 3]"));
  CHECK(contains(shape_error("linear", "{out_features: 4}", {{4, 4, 3}}), "flatten"));
  CHECK(contains(shape_error("max_pool2d", "{kernel_size: 2, padding: 2}", {{4, 4, 3}}), "less than the kernel"));
  const std::string sum = shape_error("add", "", {{4, 4, 3}, {4, 4, 5}});
  CHECK(contains(sum, "[4, 4, 3]"));
  CHECK(contains(sum, "[4, 4, 5]"));
  CHECK(contains(shape_error("concat", "", {{4, 4, 3}, {4, 3}}), "[4, 3]"));
  CHECK(contains(shape_error("cross_entropy", "", {{4, 4}, {}}), "[4, 4]"));
  CHECK(contains(shape_error("mse", "", {{4}, {5}}), "[5]"));
  CHECK(contains(shape_error("pad", "{padding: [1, 2]}", {{4, 4, 3}}), "[top, bottom, left, right]"));
  CHECK(contains(shape_error("pad", "{padding: 1}", {{4}}), "sequence"));
  CHECK(contains(shape_error("crop", "{cropping: 2}", {{4, 5, 3}}), "axis 0"));
  CHECK(contains(shape_error("crop", "{size: 5}", {{4, 5, 3}}), "larger"));
  CHECK(contains(shape_error("slice", "{begin: 2, end: 2}", {{4, 5, 3}}), "nothing"));
  CHECK(contains(shape_error("slice", "{end: 4}", {{4, 5, 3}}), "more than there is"));
  CHECK(contains(shape_error("slice", "{axis: 3}", {{4, 5, 3}}), "no axis 3"));
  CHECK(contains(shape_error("transpose", "{axes: [0, 1]}", {{4, 5, 3}}), "each axis"));
  CHECK(contains(shape_error("transpose", "{axes: [0, 1, 1]}", {{4, 5, 3}}), "each axis"));
  CHECK(contains(shape_error("transpose", "{swap: [0, 3]}", {{4, 5, 3}}), "no such axes"));
  CHECK(contains(shape_error("reshape", "{shape: [7, -1]}", {{4, 5, 3}}), "[7, -1]"));
  CHECK(contains(shape_error("reshape", "{shape: [1099511627776, 1099511627776]}", {{4, 5, 3}}), "do not fill"));
  CHECK(contains(shape_error("upsample", "{scale_factor: 0.1}", {{4, 5, 3}}), "gives 0"));
  CHECK(contains(shape_error("dropout2d", "", {{4}}), "use dropout"));
  CHECK(
      contains(shape_error("conv_transpose2d", "{out_channels: 2, kernel_size: 1, padding: 2}", {{4, 5, 3}}), "leaves nothing"));
  CHECK(contains(shape_error("conv_transpose2d", "{out_channels: 2, kernel_size: 1, groups: 2}", {{4, 5, 3}}), "[4, 5, 3]"));
}

TEST_CASE("weights start as PyTorch starts them, or as init says") {
  using Kind = graph::Init::Kind;
  const graph::Init standard = weight_init("conv2d", "{out_channels: 8, kernel_size: 3, groups: 2}", {5, 5, 4});
  CHECK(standard.kind == Kind::uniform);
  CHECK(standard.magnitude == doctest::Approx(1 / std::sqrt(2.0 * 9)));
  const graph::Init kaiming = weight_init(
      "conv2d", "{out_channels: 8, kernel_size: 3, init: {kaiming_normal: {mode: fan_out, nonlinearity: relu}}}", {5, 5, 4});
  CHECK(kaiming.kind == Kind::normal);
  CHECK(kaiming.magnitude == doctest::Approx(std::sqrt(2.0 / (8 * 9))));
  const graph::Init xavier = weight_init("linear", "{out_features: 10, init: xavier_uniform}", {20});
  CHECK(xavier.magnitude == doctest::Approx(std::sqrt(6.0 / 30)));
  CHECK(weight_init("linear", "{out_features: 10, init: ones}", {20}).value == 1);
  CHECK(weight_init("linear", "{out_features: 10, init: {truncated_normal: {std: 0.02}}}", {20}).magnitude == 0.02);
}
