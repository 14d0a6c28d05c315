#include "tests/support/op_cases.h"

#include "app/yaml_tree.h"

#include <fmt/ranges.h>

namespace gpipe::test {
namespace {

using tensor::Shape;

// Twenty sample shapes of every rank, odd extents among them, and the micro-batches they come in.
struct Sized {
  Shape shape;
  std::vector<int64_t> micro_batches;
};
const std::vector<Sized>& common_shapes() {
  static const std::vector<Sized> all = {
      {{1}, {2}},          {{2}, {1}},           {{3}, {3}},       {{7}, {1, 1}},    {{16}, {2}},       {{17}, {2, 1}},
      {{33}, {1}},         {{64}, {2}},          {{1, 1}, {2}},    {{2, 3}, {1}},    {{5, 7}, {3, 2}},  {{3, 16}, {2}},
      {{9, 5}, {1, 1, 1}}, {{1, 1, 3}, {2}},     {{3, 3, 1}, {1}}, {{3, 5, 2}, {2}}, {{2, 2, 17}, {1}}, {{5, 4, 3}, {2, 1}},
      {{1, 7, 5}, {4}},    {{4, 4, 16}, {2, 2}}, {{7, 3, 6}, {1}},
  };
  return all;
}

void add_activations(std::vector<OpCase>& cases) {
  for (const char* type : {"relu", "leaky_relu", "gelu", "silu", "sigmoid", "tanh"})
    for (const Sized& sized : common_shapes()) cases.push_back({type, "", {sized.shape}, sized.micro_batches});
  cases.push_back({"leaky_relu", "{negative_slope: 0.3}", {{3, 5}}, {2}});
  cases.push_back({"leaky_relu", "{negative_slope: -0.5}", {{3, 5}}, {2}});
  for (const Sized& sized : common_shapes()) cases.push_back({"gelu", "{approximate: tanh}", {sized.shape}, sized.micro_batches});
  for (const Sized& sized : common_shapes()) {
    cases.push_back({"softmax", "", {sized.shape}, sized.micro_batches});
    for (const char* limits : {"{min: -1, max: 0.5}", "{magnitude: 2}"})
      cases.push_back({"clip", limits, {sized.shape}, sized.micro_batches});
    for (const char* how : {"{factor: -0.7}", "{learned: channels, init: 0.5}"})
      cases.push_back({"scale", how, {sized.shape}, sized.micro_batches});
  }
  cases.push_back({"clip", "{max: 0}", {{3, 5}}, {2}});
  cases.push_back({"clip", "{min: -0.25}", {{3, 5}}, {2}});
  cases.push_back({"softmax", "", {{33, 31, 13}}, {2}, true});
  cases.push_back({"softmax", "", {{1, 1000}}, {3, 2}, true});
  cases.push_back({"scale", "{learned: channels}", {{33, 31, 19}}, {3, 2}, true});
  for (const char* type : {"relu", "gelu", "silu", "sigmoid", "tanh"}) cases.push_back({type, "", {{33, 31, 13}}, {2}, true});
}

void add_moves(std::vector<OpCase>& cases) {
  for (const Sized& sized : common_shapes()) {
    cases.push_back({"flatten", "", {sized.shape}, sized.micro_batches});
    cases.push_back({"add", "", {sized.shape, sized.shape}, sized.micro_batches});
    for (const char* p : {"{p: 0.5}", "{p: 0.1}"}) {
      cases.push_back({"dropout", p, {sized.shape}, sized.micro_batches});
      if (sized.shape.rank() > 1) cases.push_back({"dropout2d", p, {sized.shape}, sized.micro_batches});
    }
    for (const char* keep : {"{keep: 0.5}", "{keep: 0.3, ramp: true}"})
      cases.push_back({"drop_path", keep, {sized.shape}, sized.micro_batches});
    cases.push_back({"reshape", "{shape: [1, -1]}", {sized.shape}, sized.micro_batches});
    std::vector<int64_t> wider(sized.shape.extents().begin(), sized.shape.extents().end());
    wider.back() += 2;
    cases.push_back({"concat", "", {sized.shape, Shape(std::span<const int64_t>(wider))}, sized.micro_batches});
  }
  cases.push_back({"add", "", {{3, 5}, {3, 5}, {3, 5}}, {2, 1}});
  cases.push_back({"concat", "", {{3, 1}, {3, 5}, {3, 2}, {3, 16}}, {2, 1}});
  cases.push_back({"dropout", "{p: 0}", {{3, 5}}, {2}});
  cases.push_back({"dropout", "", {{16, 15, 7}}, {3, 2}, true});
  cases.push_back({"dropout2d", "{p: 0.4}", {{16, 5, 200}}, {3, 2}, true});
  cases.push_back({"drop_path", "{keep: 0.6}", {{16, 15, 7}}, {5, 4, 4}, true});
  cases.push_back({"drop_path", "{keep: 1}", {{3, 5}}, {2}});
}

}  // namespace

std::string OpCase::text() const {
  return fmt::format("{} {} {} x {}", type, arguments, fmt::join(inputs, " "), fmt::join(micro_batches, "+"));
}

const Ids* OpCase::ids_of(size_t input) const {
  for (const Ids& one : ids)
    if (one.input == input) return &one;
  return nullptr;
}

std::vector<tensor::DType> OpCase::types() const {
  std::vector<tensor::DType> all;
  for (size_t i = 0; i < inputs.size(); ++i) all.push_back(ids_of(i) != nullptr ? tensor::DType::i32 : tensor::DType::f32);
  return all;
}

base::Tree OpCase::tree() const { return app::parse_yaml(arguments, "case"); }

const std::vector<OpCase>& op_cases() {
  static const std::vector<OpCase> all = [] {
    std::vector<OpCase> cases;
    add_window_cases(cases);
    add_other_cases(cases);
    add_move_cases(cases);
    add_sequence_cases(cases);
    add_activations(cases);
    add_moves(cases);
    return cases;
  }();
  return all;
}

}  // namespace gpipe::test
