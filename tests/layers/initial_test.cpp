// What weights start with: PyTorch's fan rules and fixed patterns from stored numbers, TensorFlow's variance scaling, factors,
// and what is refused.
#include "core/graph/init.h"
#include "tests/support/node_run.h"
#include "tests/support/paths.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <fstream>

using namespace gpipe;
using namespace gpipe::test;
using Kind = graph::Init::Kind;

namespace {

graph::ParameterSpec weight_of(const std::string& type, std::string arguments, const std::string& init,
                               const tensor::Shape& input) {
  if (!init.empty()) arguments.insert(arguments.size() - 1, ", init: " + init);
  const std::vector<tensor::Shape> inputs = {input};
  return make_layer_of({type, arguments, inputs})->parameters(inputs)[0];
}
graph::Init linear_init(const std::string& init) { return weight_of("linear", "{out_features: 10}", init, {20}).init; }

std::string problems_of(const std::string& type, const std::string& arguments) {
  base::Problems problems;
  const auto layer = layer_type(type).make(OpCase{type, arguments, {}}.tree(), type, problems);
  CHECK((layer == nullptr) == !problems.empty());
  std::string text;
  for (const std::string& line : problems.errors()) text += line + "\n";
  return text;
}
bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("weights start with PyTorch's deviations, bounds and patterns") {
  const auto all = nlohmann::json::parse(std::ifstream(source_dir() / "tests" / "reference" / "initials.json"));
  for (const auto& entry : all["cases"]) {
    const std::string type = entry["layer"], init = entry["init"];
    CAPTURE(type + " " + init);
    const std::vector<int64_t> extents = entry["input"];
    const graph::ParameterSpec weight =
        weight_of(type, entry["arguments"], init, tensor::Shape(std::span<const int64_t>(extents)));
    if (entry.contains("bound")) {
      CHECK(weight.init.kind == Kind::uniform);
      CHECK(weight.init.magnitude == doctest::Approx(entry["bound"].get<double>()).epsilon(1e-9));
    } else if (entry.contains("std")) {
      CHECK(weight.init.kind == Kind::normal);
      CHECK(weight.init.magnitude == doctest::Approx(entry["std"].get<double>()).epsilon(1e-9));
    } else {
      std::vector<float> values(static_cast<size_t>(weight.shape.elements()), -1.0F);
      graph::initialise(weight, "w", 1, values);
      CHECK(values == entry["values"].get<std::vector<float>>());
    }
  }
}

TEST_CASE("variance scaling is TensorFlow's") {
  const graph::Init usual = linear_init("variance_scaling");
  CHECK(usual.kind == Kind::truncated_normal);
  CHECK(usual.magnitude == doctest::Approx(std::sqrt(1.0 / 20) / 0.87962566103423978));
  CHECK(usual.low == -2);
  CHECK(usual.high == 2);
  const graph::Init average = linear_init("{variance_scaling: {scale: 2, mode: fan_avg, distribution: uniform}}");
  CHECK(average.kind == Kind::uniform);
  CHECK(average.magnitude == doctest::Approx(std::sqrt(3 * 2.0 / 15)));
  const graph::Init out = linear_init("{variance_scaling: {scale: 0.5, mode: fan_out, distribution: untruncated_normal}}");
  CHECK(out.kind == Kind::normal);
  CHECK(out.magnitude == doctest::Approx(std::sqrt(0.5 / 10)));
}

TEST_CASE("scale and divide are factors of every value") {
  const double xavier = std::sqrt(6.0 / 30);
  CHECK(linear_init("{xavier_uniform: {scale: 0.05}}").magnitude == doctest::Approx(0.05 * xavier));
  CHECK(linear_init("{xavier_uniform: {divide: 48}}").magnitude == doctest::Approx(xavier / 48));
  CHECK(linear_init("{variance_scaling: {divide: 4}}").magnitude ==
        doctest::Approx(linear_init("variance_scaling").magnitude / 4));
  const graph::Init normal = linear_init("{normal: {mean: 1, std: 0.5, scale: 3, divide: 2}}");
  CHECK(normal.value == doctest::Approx(1.5));
  CHECK(normal.magnitude == doctest::Approx(0.75));
  CHECK(linear_init("{constant: {value: 2, scale: 3}}").value == 6);
  CHECK(linear_init("{orthogonal: {gain: 2, divide: 4}}").magnitude == 0.5);
  CHECK(linear_init("{eye: {scale: 3}}").magnitude == 3);
}

TEST_CASE("bounds are PyTorch's: of values, not of deviations") {
  const graph::Init cut = linear_init("{trunc_normal: {mean: 1, std: 0.5, a: 0, b: 1.25}}");
  CHECK(cut.low == -2);
  CHECK(cut.high == 0.5);
  const graph::Init range = linear_init("{uniform: {a: 1, b: 4}}");
  CHECK(range.value == 2.5);
  CHECK(range.magnitude == 1.5);
}

TEST_CASE("norms start as they are told, by rules that need no fan") {
  for (const std::string type : {"batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm"}) {
    CAPTURE(type);
    std::string arguments = type == "group_norm" ? "{num_groups: 1, " : type == "instance_norm" ? "{affine: true, " : "{";
    const std::vector<tensor::Shape> inputs = {{2, 2, 4}};
    const auto all = make_layer_of({type, arguments + "init: zeros}", inputs})->parameters(inputs);
    CHECK(all[0].init.value == 0);
    if (type != "rms_norm") {
      CHECK(all[1].init.value == 0);
      const auto shifted = make_layer_of({type, arguments + "bias_init: {normal: {mean: 2}}}", inputs})->parameters(inputs);
      CHECK(shifted[0].init.value == 1);
      CHECK(shifted[1].init.kind == Kind::normal);
      CHECK(shifted[1].init.value == 2);
    }
    CHECK(contains(problems_of(type, arguments + "init: xavier_normal}"), "'xavier_normal' is for weights"));
  }
}

TEST_CASE("what a parameter cannot start with is refused where it is written") {
  const auto linear = [](const std::string& init) { return problems_of("linear", "{out_features: 3, " + init + "}"); };
  const auto conv = [](const std::string& init) {
    return problems_of("conv2d", "{out_channels: 3, kernel_size: 3, " + init + "}");
  };
  CHECK(contains(linear("init: dirac"), "filters"));
  CHECK(contains(conv("init: eye"), "matrices"));
  CHECK(contains(conv("init: {sparse: {sparsity: 0.5}}"), "matrices"));
  CHECK(contains(linear("init: sparse"), "sparsity"));
  CHECK(contains(linear("bias_init: orthogonal"), "linear.bias_init"));
  CHECK(contains(linear("init: {trunc_normal: {a: 10, b: 11}}"), "thousandth"));
  CHECK(contains(linear("init: {trunc_normal: {a: 1, b: -1}}"), "thousandth"));
  CHECK(contains(linear("init: {uniform: {a: 1}}"), "both `a` and `b`"));
  CHECK(contains(linear("init: {uniform: {a: 1, b: 2, bound: 3}}"), "both `a` and `b`"));
  CHECK(contains(linear("init: {uniform: {a: 2, b: 1}}"), "a <= b"));
  CHECK(contains(linear("init: {xavier_normal: {divide: 0}}"), "divide"));
  CHECK(contains(linear("init: orthogonl"), "orthogonal"));
  CHECK(linear("init: orthogonal, bias_init: {uniform: {bound: 0.1}}").empty());
  CHECK(conv("init: {dirac: {groups: 3}}").empty());
}
