// Cases of convolutions and pools.
#include "tests/support/op_cases.h"

namespace gpipe::test {
namespace {

void add_convolutions(std::vector<OpCase>& cases) {
  const auto add = [&](const char* arguments, tensor::Shape image, std::vector<int64_t> micro_batches, bool large = false) {
    cases.push_back({"conv2d", arguments, {image}, std::move(micro_batches), large});
  };
  add("{out_channels: 1, kernel_size: 1}", {1, 1, 1}, {1});
  add("{out_channels: 4, kernel_size: 1}", {3, 5, 3}, {2});
  add("{out_channels: 2, kernel_size: 3}", {3, 3, 2}, {1});
  add("{out_channels: 3, kernel_size: 3, padding: same}", {5, 5, 2}, {2, 1});
  add("{out_channels: 3, kernel_size: 3, padding: 1, bias: false}", {5, 7, 3}, {1, 1});
  add("{out_channels: 2, kernel_size: [3, 2], padding: valid}", {5, 4, 3}, {2});
  add("{out_channels: 2, kernel_size: [1, 3], padding: [0, 1]}", {3, 5, 2}, {3, 2});
  add("{out_channels: 2, kernel_size: 3, padding: [0, 1, 2, 1]}", {4, 5, 2}, {1});
  add("{out_channels: 3, kernel_size: 3, stride: 2, padding: 1}", {7, 7, 2}, {2});
  add("{out_channels: 2, kernel_size: 3, stride: 2, padding: same}", {6, 5, 3}, {1});
  add("{out_channels: 2, kernel_size: 2, stride: 3}", {8, 7, 2}, {2});              // stride > kernel
  add("{out_channels: 2, kernel_size: 1, stride: 4, padding: 2}", {5, 5, 1}, {1});  // stride > kernel, padded
  add("{out_channels: 2, kernel_size: 3, stride: [1, 2], padding: [1, 0]}", {5, 9, 1}, {2});
  add("{out_channels: 2, kernel_size: 3, dilation: 2}", {7, 6, 2}, {1});
  add("{out_channels: 2, kernel_size: 3, dilation: 2, padding: same}", {5, 5, 2}, {2, 1});
  add("{out_channels: 2, kernel_size: 3, dilation: [1, 3], stride: 2, padding: 3}", {5, 7, 2}, {1});
  add("{out_channels: 4, kernel_size: 3, groups: 2, padding: 1}", {5, 3, 4}, {2});
  add("{out_channels: 6, kernel_size: 3, groups: 3, padding: 1}", {4, 5, 3}, {1});
  add("{out_channels: 4, kernel_size: 3, groups: 4, padding: 1, bias: false}", {5, 5, 4}, {2, 1});  // depthwise
  add("{out_channels: 6, kernel_size: 3, groups: 2, stride: 4}", {9, 9, 4}, {1});
  add("{out_channels: 2, kernel_size: 5, padding: 4}", {3, 3, 2}, {1});
  add("{out_channels: 2, kernel_size: 4, padding: same}", {5, 3, 2}, {2});
  add("{out_channels: 64, kernel_size: 3, padding: same}", {9, 9, 64}, {2, 1}, true);
  add("{out_channels: 32, kernel_size: 3, padding: same, bias: false}", {15, 13, 3}, {4, 3}, true);
  add("{out_channels: 32, kernel_size: 3, stride: 2, padding: 1}", {16, 16, 16}, {3, 2}, true);
  add("{out_channels: 32, kernel_size: 1, stride: 2, bias: false}", {16, 16, 16}, {2, 2}, true);
  add("{out_channels: 30, kernel_size: 3, padding: 2, dilation: 2}", {13, 11, 20}, {2, 1}, true);
  add("{out_channels: 32, kernel_size: 3, padding: 1, groups: 4}", {9, 9, 32}, {2, 1}, true);
  add("{out_channels: 24, kernel_size: 5, padding: 2, groups: 24}", {11, 9, 24}, {2, 1}, true);
  add("{out_channels: 32, kernel_size: 5, stride: 2, padding: 2, groups: 32, dilation: 2}", {17, 15, 32}, {1, 1}, true);
  add("{out_channels: 10, kernel_size: 7, stride: 2, padding: 3}", {31, 29, 3}, {1}, true);
  add("{out_channels: 16, kernel_size: 3, padding: same}", {8, 8, 1}, {5, 4}, true);
}

void add_pools(std::vector<OpCase>& cases) {
  for (const char* type : {"max_pool2d", "avg_pool2d"}) {
    const auto add = [&](const char* arguments, tensor::Shape image, std::vector<int64_t> micro_batches) {
      cases.push_back({type, arguments, {image}, std::move(micro_batches)});
    };
    add("{kernel_size: 1}", {1, 1, 1}, {1});
    add("{kernel_size: 2}", {4, 4, 3}, {2});
    add("{kernel_size: 2}", {5, 7, 2}, {1});
    add("{kernel_size: 3}", {3, 3, 5}, {2, 1});
    add("{kernel_size: 3, stride: 2}", {7, 7, 2}, {1});
    add("{kernel_size: 3, stride: 2, padding: 1}", {7, 5, 3}, {2});
    add("{kernel_size: 3, stride: 1, padding: 1}", {4, 5, 2}, {1, 1});
    add("{kernel_size: 3, stride: 1, padding: same}", {5, 3, 2}, {1});
    add("{kernel_size: 2, stride: 1, padding: same}", {5, 3, 2}, {2});
    add("{kernel_size: 2, stride: 2, padding: same}", {5, 5, 2}, {2});
    add("{kernel_size: 2, stride: 3}", {8, 8, 2}, {1});  // stride > kernel
    add("{kernel_size: 1, stride: 3}", {5, 7, 3}, {2});
    add("{kernel_size: [3, 1]}", {6, 3, 2}, {1});
    add("{kernel_size: [1, 4], stride: [2, 1]}", {5, 6, 1}, {3, 2});
    add("{kernel_size: [2, 3], stride: 2, padding: [0, 1]}", {4, 7, 2}, {1});
    add("{kernel_size: 4, stride: 2, padding: [1, 2, 0, 3]}", {6, 5, 2}, {1});
    add("{kernel_size: 5, stride: 5, padding: 2}", {7, 9, 1}, {2});
    add("{kernel_size: 2}", {2, 2, 16}, {1});
    add("{kernel_size: 2}", {4, 2, 17}, {2});
    add("{kernel_size: 3, stride: 2, padding: 1}", {5, 5, 19}, {1});
    cases.push_back({type, "{kernel_size: 3, stride: 2, padding: 1}", {{19, 17, 33}}, {3, 2}, true});
    cases.push_back({type, "{kernel_size: 17, stride: 3, padding: 8}", {{19, 17, 3}}, {2}, true});
  }
  for (const char* arguments : {"{kernel_size: 3, stride: 1, padding: 1, count_include_pad: false}",
                                "{kernel_size: 3, stride: 2, padding: same, count_include_pad: false}",
                                "{kernel_size: [3, 2], stride: 4, padding: [2, 0, 1, 1], count_include_pad: false}"})
    cases.push_back({"avg_pool2d", arguments, {{6, 7, 3}}, {2, 1}});
  for (int64_t height = 1; height <= 5; ++height)
    for (int64_t channels : {1, 3, 16, 17}) cases.push_back({"global_avg_pool", "", {{height, 4, channels}}, {2, 1}});
  cases.push_back({"global_avg_pool", "", {{7, 5}}, {2}});
}

}  // namespace

void add_window_cases(std::vector<OpCase>& cases) {
  add_convolutions(cases);
  add_pools(cases);
}

}  // namespace gpipe::test
