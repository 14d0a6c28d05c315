// From a list of layers to a flat graph: names, inputs, composites, and what is said about mistakes.
#include "tests/support/small_run.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

using namespace gpipe;

namespace {

const tensor::Shape k_image{8, 8, 3};

std::string names_of(const graph::Network& network) {
  std::vector<std::string> names;
  for (const graph::Node& node : network.nodes) names.push_back(node.name);
  return fmt::format("{}", fmt::join(names, " "));
}

/// The message for a network that must be refused.
std::string fault_of(const std::string& yaml, int64_t classes = 4) {
  try {
    test::network_of(yaml, k_image, classes);
  } catch (const base::ConfigError& error) { return error.what(); }
  return "no fault";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("entries are named by type and number, in a scope of names for each composite") {
  const auto network = test::network_of(R"(
- conv2d: {out_channels: 4, kernel_size: 1}
- sequential: [relu, relu]
- residual:
    body: [{conv2d: {out_channels: 4, kernel_size: 1}}, relu]
  name: block
- repeat: {times: 2, body: [relu, {dropout: {p: 0.1}}]}
- concat: {branches: [[], [relu]]}
- global_avg_pool
- linear: {out_features: 4}
  name: head
)",
                                        k_image, 4);
  CHECK(names_of(network) ==
        "conv2d_1 sequential_1.relu_1 sequential_1.relu_2 block.body.conv2d_1 block.body.relu_1 block.add repeat_1.0.relu_1 "
        "repeat_1.0.dropout_1 "
        "repeat_1.1.relu_1 repeat_1.1.dropout_1 concat_1.1.relu_1 concat_1.concat global_avg_pool_1 head loss");
  CHECK(network.nodes[11].inputs.size() == 2);
  CHECK(network.values[static_cast<size_t>(network.nodes[11].output)].shape == tensor::Shape{8, 8, 8});
  CHECK(network.parameter_count() == 3 * 4 + 4 + 4 * 4 + 4 + 8 * 4 + 4);
}

TEST_CASE("inputs are found by name, nearest scope first, and `input` is the list's own") {
  const auto network = test::network_of(R"(
- conv2d: {out_channels: 3, kernel_size: 1}
  name: a
- add:
  inputs: [a, input]
- sequential:
  - relu: {}
    name: a
  - add:
    inputs: [a, input]
- flatten
- linear: {out_features: 4}
)",
                                        k_image, 4);
  const auto& outer = network.nodes[1];
  CHECK(outer.inputs == std::vector<int>{network.nodes[0].output, network.input});
  const auto& inner = network.nodes[3];
  CHECK(inner.inputs == std::vector<int>{network.nodes[2].output, outer.output});
}

TEST_CASE("gradients are wanted only of what depends on a parameter") {
  const auto network =
      test::network_of("[relu, {conv2d: {out_channels: 2, kernel_size: 1}}, flatten, {linear: {out_features: 4}}]", k_image, 4);
  CHECK_FALSE(network.values[static_cast<size_t>(network.nodes[0].output)].wants_gradient);
  CHECK(network.values[static_cast<size_t>(network.nodes[1].output)].wants_gradient);
}

TEST_CASE("a mistake in the list names its place, what was found and what to try") {
  CHECK(has(fault_of("[conv2dd]"), "did you mean 'conv2d'"));
  CHECK(has(fault_of("[conv2dd]"), "network:1:2"));
  CHECK(has(fault_of("[{relu: {}, tanh: {}}]"), "relu, tanh"));
  CHECK(has(fault_of("[{name: a}]"), "no layer type"));
  CHECK(has(fault_of("[[relu]]"), "a list"));
  CHECK(has(fault_of("[cross_entropy]"), "train.loss"));
  CHECK(has(fault_of("[{relu: {}, name: a}, {relu: {}, name: a}]"), "taken"));
  CHECK(has(fault_of("[{relu: {}, name: 'a b'}]"), "letters"));
  CHECK(has(fault_of("[{relu: {}, name: first}, {add: , inputs: [firts, input]}]"), "did you mean 'first'"));
  CHECK(has(fault_of("[{relu: , inputs: [input, input]}]"), "takes 1 input, found 2"));
  CHECK(has(fault_of("[{conv2d: {out_channels: 4, kernel_size: 9}}]"), "[8, 8, 3]"));
  CHECK(has(fault_of("[{residual: {body: [{conv2d: {out_channels: 5, kernel_size: 1}}]}}]"), "[8, 8, 5]"));
  CHECK(has(fault_of("[{repeat: {times: -1, body: [relu]}}]"), "times"));
  CHECK(has(fault_of("[{repeat: {body: [relu]}}]"), "times"));
  CHECK(has(fault_of("[]"), "empty"));
  CHECK(has(fault_of("[flatten, relu]"), "no parameters"));
  CHECK(has(fault_of("[flatten, {linear: {out_features: 3}}]"), "4 classes"));
  CHECK(has(fault_of("[{relu: {}, name: lost}, {conv2d: {out_channels: 2, kernel_size: 1}, inputs: [input]}, flatten, {linear: "
                     "{out_features: 4}}]"),
            "'lost' is used by nobody"));
}

TEST_CASE("sizes that no machine has are refused in words, not by a crash or an endless loop") {
  for (const char* bad :
       {"[flatten, {linear: {out_features: 9223372036854775807}}]", "[flatten, {linear: {out_features: 4294967296}}]",
        "[{conv2d: {out_channels: 4, kernel_size: 10000, padding: same}}]",
        "[{conv2d: {out_channels: 4, kernel_size: 3, padding: 1000000000}}]",
        "[{conv2d: {out_channels: 4, kernel_size: 3, padding: [4611686018427387904, 0, 0, 0]}}]",
        "[{conv2d: {out_channels: 1000000000, kernel_size: 3}}]",
        "[{conv2d: {out_channels: 4, kernel_size: 3, stride: 9223372036854775807}}]",
        "[{conv2d: {out_channels: 4, kernel_size: 3, dilation: 10000000}}]",
        "[{max_pool2d: {kernel_size: 9223372036854775800, padding: 9223372036854775799}}]",
        "[{repeat: {times: 10000, body: [{repeat: {times: 10000, body: [relu]}}]}}]",
        "[{repeat: {times: 10000, body: [{repeat: {times: 10000, body: []}}]}}]"}) {
    CAPTURE(bad);
    CHECK(fault_of(bad) != "no fault");
  }
}

TEST_CASE("a cost of an entry is that of all its nodes, and all entries have one, or none") {
  const auto network = test::network_of(R"(
- conv2d: {out_channels: 4, kernel_size: 1}
  cost: 3.5
- residual: {body: [relu, relu]}
  cost: 2
- flatten:
  cost: 0.5
- linear: {out_features: 4}
  cost: 1
)",
                                        k_image, 4);
  REQUIRE(network.given_costs.size() == 4);
  CHECK(network.given_costs[0].cost == 3.5);
  CHECK(network.given_costs[1].first_node == 1);
  CHECK(network.given_costs[1].last_node == 4);  // two relus and the addition
  CHECK(network.given_costs[3].last_node == network.loss_node());
  const std::string some =
      fault_of("[{conv2d: {out_channels: 4, kernel_size: 1}, cost: 1}, relu, flatten, linear: {out_features: 4}]");
  CHECK(has(some, "1 entries have a `cost`, but 3 have none (relu_1, flatten_1, linear_1)"));
  CHECK(has(fault_of("[{flatten: {}, cost: 0}, {linear: {out_features: 4}, cost: 1}]"), "network.0.cost"));
  CHECK(has(fault_of("[{flatten: {}, cost: much}, {linear: {out_features: 4}, cost: 1}]"), "wanted a number"));
  CHECK(has(fault_of("[{sequential: [{relu: {}, cost: 1}]}, flatten, linear: {out_features: 4}]"), "own list only"));
}
