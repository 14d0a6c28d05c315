// Cases of linear maps, batch norm and losses.
#include "tests/support/op_cases.h"

#include <fmt/format.h>

namespace gpipe::test {

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

  for (int64_t classes : {2, 3, 7, 10, 17})
    for (const char* arguments : {"", "{label_smoothing: 0.1}"})
      for (const Micros& micros : {Micros{1}, Micros{3, 2}}) {
        cases.push_back({"cross_entropy", arguments, {{classes}, {}}, micros});
      }
  cases.push_back({"cross_entropy", "{label_smoothing: 1}", {{5}, {1}}, {2}});
  cases.push_back({"cross_entropy", "", {{1000}, {}}, {7, 6}, true});
  for (int64_t extent : {1, 2, 3, 5, 8, 17, 33})
    for (const Micros& micros : {Micros{1}, Micros{3, 2}, Micros{2, 2}})
      cases.push_back({"mse", "", {{extent}, {extent}}, micros});
  cases.push_back({"mse", "", {{3, 5, 2}, {3, 5, 2}}, {2, 1}});
}

}  // namespace gpipe::test
