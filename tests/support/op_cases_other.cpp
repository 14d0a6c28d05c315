// Cases of linear maps, batch norm and losses.
#include "tests/support/op_cases.h"

#include <fmt/format.h>

namespace gpipe::test {

namespace {

/// Norms that look at one sample alone.
void add_sample_norms(std::vector<OpCase>& cases) {
  using Micros = std::vector<int64_t>;
  for (const char* type : {"layer_norm", "rms_norm"}) {
    for (int64_t channels : {2, 3, 5, 16, 17, 33})
      for (const Micros& micros : {Micros{2}, Micros{2, 1}, Micros{1, 1, 1}}) cases.push_back({type, "", {{channels}}, micros});
    cases.push_back({type, "", {{3, 5}}, {2, 1}});
    cases.push_back({type, "", {{3, 2, 7}}, {2}});
    cases.push_back({type, "{affine: false}", {{3, 5}}, {2}});
    cases.push_back({type, "{eps: 0.1}", {{4, 18}}, {1, 1}});
    cases.push_back({type, "", {{65, 300}}, {3, 2}, true});
  }
  for (int64_t groups : {1, 2, 3, 6})
    for (const tensor::Shape& shape : {tensor::Shape{6}, tensor::Shape{5, 6}, tensor::Shape{3, 2, 12}, tensor::Shape{2, 2, 18}})
      if (shape.back() / groups * shape.elements() / shape.back() > 1)
        for (const Micros& micros : {Micros{2}, Micros{2, 1}})
          cases.push_back({"group_norm", fmt::format("{{num_groups: {}}}", groups), {shape}, micros});
  cases.push_back({"group_norm", "{num_groups: 2, affine: false, eps: 0.1}", {{3, 3, 8}}, {2, 1}});
  cases.push_back({"group_norm", "{num_groups: 4}", {{17, 19, 64}}, {3, 2}, true});
  for (const char* arguments : {"", "{affine: true}"})
    for (const tensor::Shape& shape :
         {tensor::Shape{2, 1}, tensor::Shape{5, 3}, tensor::Shape{3, 2, 5}, tensor::Shape{2, 4, 16}, tensor::Shape{3, 3, 17}})
      for (const Micros& micros : {Micros{2}, Micros{2, 1}}) cases.push_back({"instance_norm", arguments, {shape}, micros});
  cases.push_back({"instance_norm", "{eps: 0.1}", {{4, 3, 2}}, {1, 1}});
  cases.push_back({"instance_norm", "{affine: true}", {{17, 13, 33}}, {2}, true});
  // Groups narrower than sixteen channels: several copies of the channels side by side, with a short last line; several tiles.
  cases.push_back({"instance_norm", "{affine: true}", {{5, 5, 4}}, {2, 1}});
  cases.push_back({"instance_norm", "{affine: true}", {{3, 7, 1}}, {2}});
  cases.push_back({"group_norm", "{num_groups: 2}", {{11, 13, 8}}, {2}, true});
  cases.push_back({"group_norm", "{num_groups: 32}", {{3, 3, 96}}, {2, 1}, true});
  cases.push_back({"instance_norm", "{affine: true}", {{12, 9, 80}}, {2}, true});
}

}  // namespace

void add_other_cases(std::vector<OpCase>& cases) {
  using Micros = std::vector<int64_t>;
  for (int64_t in : {1, 2, 5, 7, 16})
    for (int64_t out : {1, 3, 8, 17}) {
      const Micros micros = in == 5 ? Micros{2, 1} : in == 7 ? Micros{1, 1, 1} : Micros{in % 3 + 1};
      cases.push_back({"linear", fmt::format("{{out_features: {}}}", out), {{in}}, micros});
    }
  cases.push_back({"linear", "{out_features: 3, bias: false}", {{5}}, {2, 2}});
  cases.push_back({"linear", "{out_features: 4}", {{3, 5}}, {2, 1}});
  cases.push_back({"linear", "{out_features: 2, bias: false}", {{5, 3}}, {1}});
  cases.push_back({"linear", "{out_features: 130}", {{257}}, {33, 32}, true});
  cases.push_back({"linear", "{out_features: 10}", {{256}}, {4}, true});
  cases.push_back({"linear", "{out_features: 64}", {{1, 64}}, {1, 1}, true});

  for (int64_t channels : {1, 2, 5, 16, 17})
    for (const Micros& micros : {Micros{4}, Micros{3, 2}, Micros{2, 2, 2}})
      cases.push_back({"batch_norm", "", {{channels}}, micros});
  cases.push_back({"batch_norm", "", {{3, 5, 2}}, {1}});
  cases.push_back({"batch_norm", "", {{3, 3, 7}}, {2, 1}});
  cases.push_back({"batch_norm", "", {{5, 3}}, {2}});
  cases.push_back({"batch_norm", "{affine: false}", {{3, 2, 5}}, {2, 1}});
  cases.push_back({"batch_norm", "{eps: 0.1, momentum: 0.5}", {{2, 2, 3}}, {2, 2}});
  cases.push_back({"batch_norm", "", {{17, 19, 64}}, {3, 2}, true});
  cases.push_back({"batch_norm", "", {{33, 31, 3}}, {3, 2}, true});
  cases.push_back({"batch_norm", "", {{9, 9, 300}}, {2, 2}, true});

  add_sample_norms(cases);
  for (int64_t classes : {2, 3, 7, 10, 17})
    for (const char* arguments : {"", "{label_smoothing: 0.1}"})
      for (const Micros& micros : {Micros{1}, Micros{3, 2}}) {
        cases.push_back({"cross_entropy", arguments, {{classes}, {}}, micros, false, {{1, classes}}});
        cases.push_back({"cross_entropy", arguments, {{3, classes}, {3}}, micros, false, {{1, classes, -100, 0.3}}});
      }
  cases.push_back({"cross_entropy", "{label_smoothing: 1}", {{5}, {1}}, {2}, false, {{1, 5}}});
  cases.push_back({"cross_entropy", "", {{2, 3, 4}, {2, 3}}, {2}, false, {{1, 4}}});
  cases.push_back({"cross_entropy", "", {{2, 3}, {2}}, {2, 1}, false, {{1, 3, -100, 1}}});  // nothing to learn
  cases.push_back({"cross_entropy", "", {{1000}, {}}, {7, 6}, true, {{1, 1000}}});
  cases.push_back({"cross_entropy", "", {{33, 300}, {33}}, {3, 2}, true, {{1, 300, -100, 0.2}}});
  for (int64_t extent : {1, 2, 3, 5, 8, 17, 33})
    for (const Micros& micros : {Micros{1}, Micros{3, 2}, Micros{2, 2}})
      cases.push_back({"mse", "", {{extent}, {extent}}, micros});
  cases.push_back({"mse", "", {{3, 5, 2}, {3, 5, 2}}, {2, 1}});
}

}  // namespace gpipe::test
