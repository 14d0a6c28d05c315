// The network language: parameters, blocks, bundles of several values, repeats with an index, and their mistakes.
#include "core/graph/builder.h"
#include "layers/composite_types.h"
#include "layers/layer_types.h"
#include "tests/support/small_run.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

using namespace gpipe;

namespace {

const tensor::Shape k_image{8, 8, 3};
const std::string k_head = "- global_avg_pool\n- linear: {out_features: 4}\n";

std::string names_of(const graph::Network& network) {
  std::vector<std::string> names;
  for (const graph::Node& node : network.nodes) names.push_back(node.name);
  return fmt::format("{}", fmt::join(names, " "));
}

/// "add(conv2d_1, input)" for the node of that name.
std::string wiring(const graph::Network& network, const std::string& name) {
  const auto node = std::find_if(network.nodes.begin(), network.nodes.end(), [&](const auto& n) { return n.name == name; });
  REQUIRE_MESSAGE(node != network.nodes.end(), name << " not in " << names_of(network));
  std::vector<std::string> inputs;
  for (const int value : node->inputs) {
    const int producer = network.values[static_cast<size_t>(value)].producer;
    inputs.push_back(producer < 0 ? "input" : network.nodes[static_cast<size_t>(producer)].name);
  }
  return fmt::format("{}({})", node->type, fmt::join(inputs, ", "));
}

graph::Network network(const std::string& yaml) { return test::network_of(yaml, k_image, 4); }

std::string fault_of(const std::string& yaml) {
  try {
    network(yaml);
  } catch (const base::ConfigError& error) { return error.what(); }
  return "no fault";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("parameters stand for values of every kind, and defaults may use those before them") {
  const auto made = network(R"(
params: {width: 2, double: "${width * 2}", kind: silu, p: 0.25, pad: [1, 1], flag: false}
layers:
- conv2d: {out_channels: ${width}, kernel_size: 3, padding: ${pad}, bias: ${flag}}
- ${kind}
- dropout: {p: ${p}}
- conv2d: {out_channels: ${double}, kernel_size: 1}
  name: wide_${double}
)" + k_head);
  CHECK(names_of(made) == "conv2d_1 silu_1 dropout_1 wide_4 global_avg_pool_1 linear_1 loss");
  CHECK(made.nodes[0].parameters.size() == 1);
  CHECK(made.values[static_cast<size_t>(made.nodes[3].output)].shape == tensor::Shape{8, 8, 4});
}

TEST_CASE("a block is used like a layer, with parameters, defaults and names of its own") {
  const auto made = network(R"(
params: {width: 4}
blocks:
  unit:
    params: {c: , k: 3}
    layers:
    - conv2d: {out_channels: ${c}, kernel_size: ${k}, padding: same}
    - relu
  pair:
    params: {c: }
    layers: [{unit: {c: "${c + width}"}}, {unit: {c: "${c}", k: 1}}]
layers:
- pair: {c: 2}
- pair: {c: 3}
  name: second
)" + k_head);
  CHECK(names_of(made) ==
        "pair_1.unit_1.conv2d_1 pair_1.unit_1.relu_1 pair_1.unit_2.conv2d_1 pair_1.unit_2.relu_1 second.unit_1.conv2d_1 "
        "second.unit_1.relu_1 second.unit_2.conv2d_1 second.unit_2.relu_1 global_avg_pool_1 linear_1 loss");
  CHECK(made.nodes[0].parameters[0].shape == tensor::Shape{6, 3, 3, 3});
  CHECK(made.nodes[2].parameters[0].shape == tensor::Shape{2, 6, 1, 1});
  CHECK(made.nodes[4].parameters[0].shape == tensor::Shape{7, 2, 3, 3});
}

TEST_CASE("blocks take and give several values, which flow on together or are named one by one") {
  const auto made = network(R"(
blocks:
  cell:
    inputs: [x, skip]
    outputs: [sum, x]
    layers:
    - relu:
      inputs: [x]
      name: a
    - add: {}
      inputs: [a, skip]
      name: sum
layers:
- conv2d: {out_channels: 4, kernel_size: 1}
  name: stem
- cell:
  inputs: [stem, stem]
  name: first
- cell
- repeat: {times: 2, body: [cell]}
  name: more
- sequential: [cell]
- sequential:
  - relu:
    inputs: [input.x]
  - add:
    inputs: [relu_1, input]
  name: last
- add:
  inputs: [last, first.x]
)" + k_head);
  CHECK(wiring(made, "first.a") == "relu(stem)");
  CHECK(wiring(made, "first.sum") == "add(first.a, stem)");
  CHECK(wiring(made, "cell_2.sum") == "add(cell_2.a, stem)");
  CHECK(wiring(made, "more.0.cell_1.a") == "relu(cell_2.sum)");
  CHECK(wiring(made, "more.0.cell_1.sum") == "add(more.0.cell_1.a, first.sum)");
  CHECK(wiring(made, "more.1.cell_1.sum") == "add(more.1.cell_1.a, cell_2.sum)");
  CHECK(wiring(made, "sequential_1.cell_1.sum") == "add(sequential_1.cell_1.a, more.0.cell_1.sum)");
  CHECK(wiring(made, "last.relu_1") == "relu(more.1.cell_1.sum)");
  CHECK(wiring(made, "last.add_1") == "add(last.relu_1, sequential_1.cell_1.sum)");
  CHECK(wiring(made, "add_1") == "add(last.add_1, stem)");
}

TEST_CASE("a layer that takes several inputs takes the whole bundle") {
  const auto made = network(R"(
blocks:
  both: {outputs: [a, input], layers: [{relu: , name: a}]}
layers: [{conv2d: {out_channels: 4, kernel_size: 1}}, both, concat, both, add, global_avg_pool, {linear: {out_features: 4}}]
)");
  CHECK(wiring(made, "concat_1") == "concat(both_1.a, conv2d_1)");
  CHECK(wiring(made, "add_1") == "add(both_2.a, concat_1)");
}

TEST_CASE("repeat gives its index to expressions and names, and 0 times pass the input on") {
  const auto made = network(R"(
params: {L: 3}
layers:
- repeat:
    times: ${L}
    index: i
    body:
    - conv2d: {out_channels: "${2 * i + 4}", kernel_size: 1}
      name: conv_${i}
    - repeat: {times: "${i - 1 + 1 - i}", body: [relu]}
    - repeat: {times: "${i}", body: [{dropout: {p: 0.5}, name: "drop_${i}_${index}"}]}
)" + k_head);
  CHECK(names_of(made) ==
        "repeat_1.0.conv_0 repeat_1.1.conv_1 repeat_1.1.repeat_2.0.drop_1_0 repeat_1.2.conv_2 repeat_1.2.repeat_2.0.drop_2_0 "
        "repeat_1.2.repeat_2.1.drop_2_1 global_avg_pool_1 linear_1 loss");
  CHECK(made.nodes[3].parameters[0].shape == tensor::Shape{8, 6, 1, 1});
}

TEST_CASE("blocks see neither the names nor the indices of where they are used") {
  CHECK(has(fault_of("blocks: {b: {layers: [{add: , inputs: [input, stem]}]}}\nlayers: [{conv2d: {out_channels: 3, kernel_size: "
                     "1}, name: stem}, b]"),
            "no earlier entry is named 'stem'"));
  CHECK(has(fault_of("blocks: {b: {layers: [{dropout: {p: '${index}'}}]}}\nlayers: [{repeat: {times: 2, body: [b]}}]"),
            "no value is named \"index\""));
  CHECK(has(fault_of("blocks: {a: {params: {c: 1}, layers: [b]}, b: {layers: [{linear: {out_features: '${c}'}}]}}\nlayers: [a]"),
            "no value is named \"c\""));
}

TEST_CASE("a fault in a block names its place, the use, and the use of that") {
  const std::string fault = fault_of(R"(blocks:
  inner:
    params: {c: }
    layers:
    - conv2d: {out_channels: ${c}, kernel_size: 3}
  outer:
    layers:
    - inner: {c: 0}
layers:
- outer
)");
  CAPTURE(fault);
  CHECK(has(fault, "network:5:30: network.blocks.inner.layers.0.conv2d.out_channels: "));
  CHECK(has(fault, ", in block inner used at network:8:7, in block outer used at network:10:3"));
  CHECK(std::count(fault.begin(), fault.end(), '\n') == 0);
}

TEST_CASE("recursion is refused with its chain, and so are blocks too deep in each other") {
  CHECK(has(fault_of("blocks: {a: {layers: [b]}, b: {layers: [c]}, c: {layers: [relu, b]}}\nlayers: [a]"),
            "without end: b -> c -> b"));
  std::string chain = "blocks:\n";
  for (int i = 0; i < 60; ++i) chain += fmt::format("  b{}: {{layers: [b{}]}}\n", i, i + 1);
  CHECK(has(fault_of(chain + "  b60: {layers: [relu]}\nlayers: [b0]"), "more than 32 deep: b0 -> b1"));
}

TEST_CASE("mistakes in blocks and parameters say what was wanted") {
  const std::string unit = "blocks: {unit: {params: {c: , k: 3}, layers: [{conv2d: {out_channels: 4, kernel_size: 3}}]}}\n";
  CHECK(has(fault_of(unit + "layers: [unit]"), "the parameter \"c\" has no value"));
  CHECK(has(fault_of(unit + "layers: [{unit: {c: 1, kk: 2}}]"), "no parameter is named \"kk\", did you mean \"k\"?"));
  CHECK(has(fault_of(unit + "layers: [{unit: 3}]"), "a map with the parameters of block unit"));
  CHECK(has(fault_of(unit + "layers: [unitt]"), "did you mean 'unit'?"));
  CHECK(has(fault_of("blocks: {relu: {layers: [tanh]}}\nlayers: [relu]"), "a block needs another name"));
  CHECK(has(fault_of("blocks: {name: {layers: [tanh]}}\nlayers: [relu]"), "a block needs another name"));
  CHECK(has(fault_of("blocks: {repeat: {layers: [tanh]}}\nlayers: [relu]"), "a block needs another name"));
  CHECK(has(fault_of("blocks: {b: {layer: [tanh]}}\nlayers: [relu]"), "did you mean \"layers\"?"));
  CHECK(has(fault_of("blocks: {b: {params: {a-b: 1}, layers: [tanh]}}\nlayers: [relu]"), "is no name for a value"));
  CHECK(has(fault_of("blocks: {b: {inputs: [x, x], layers: [tanh]}}\nlayers: [relu]"), "stands here twice"));
  CHECK(has(fault_of("blocks: {b: {outputs: [y], layers: [tanh]}}\nlayers: [b]"), "no earlier entry is named 'y'"));
  CHECK(has(fault_of("blocks: {b: {inputs: [x, y], layers: [add]}}\nlayers: [b]"),
            "block b takes 2 inputs (x, y), found 1; name them"));
  CHECK(has(fault_of("params: {L: }\nlayers: [relu]"), "the parameter \"L\" has no value"));
  CHECK(has(fault_of("params: {a: '${b}', b: 1}\nlayers: [relu]"), "no value is named \"b\""));
  CHECK(has(fault_of("params: {a: 1}\nlayer: [relu]"), "unknown key \"layer\", did you mean \"layers\"?"));
  CHECK(has(fault_of("layers: [{repeat: {times: '${7 / 2}', body: [relu]}}]"), "7 / 2 is no whole number"));
  CHECK(has(fault_of("layers: [{repeat: {times: 2, index: a b, body: [relu]}}]"), "no name for a value"));
}

TEST_CASE("a layer or a network that cannot take several values says which they are") {
  const std::string two = "blocks: {two: {outputs: [y, input], layers: [{relu: , name: y}]}}\n";
  CHECK(has(fault_of(two + "layers: [two, tanh]"), "tanh takes 1 input, found 2 (y, input); name them"));
  CHECK(has(fault_of(two + "layers: [two, {residual: {body: [tanh]}}]"), "residual takes 1 input, found 2 (y, input)"));
  CHECK(has(fault_of(two + "layers: [{residual: {body: [two]}}]"), "must give one value, found 2 (y, input)"));
  CHECK(has(fault_of(two + "layers: [{conv2d: {out_channels: 3, kernel_size: 1}}, two]"),
            "the last entry gives 2 (y, input) values"));
}

TEST_CASE("names that the program gives avoid those that the user gave") {
  const auto made = network(
      "[{conv2d: {out_channels: 3, kernel_size: 1}, name: conv2d_2}, {conv2d: {out_channels: 3, "
      "kernel_size: 1}}, global_avg_pool, {linear: {out_features: 4}}]");
  CHECK(names_of(made) == "conv2d_2 conv2d_3 global_avg_pool_1 linear_1 loss");
}

TEST_CASE("without a loss a network is only looked at: nothing need be learned") {
  base::Problems problems;
  const base::Tree list = base::Tree::list({base::Tree::scalar("relu")});
  const auto made = graph::build_layers(list, "network", {k_image, {}, tensor::DType::i32, 0}, layers::layer_types(),
                                        layers::composite_types(), problems);
  problems.throw_if_any();
  CHECK(names_of(made) == "relu_1");
  CHECK(made.prediction == made.nodes[0].output);
}
