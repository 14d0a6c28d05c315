// describe: what a definition expands to, in words, as JSON and as pictures; and that large ones cost little.
#include "tests/app/child.h"
#include "tests/app/run_program.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

namespace gpipe::app {
namespace {

const std::string k_net = R"(params: {width: 8, depth: 2, side: 8}
input: {shape: ['${side}', '${side}', 3]}
blocks:
  unit:
    params: {c: }
    layers:
    - conv2d: {out_channels: '${c}', kernel_size: 3, padding: same, bias: false}
    - relu
layers:
- repeat: {times: '${depth}', body: [unit: {c: '${width}'}]}
- global_avg_pool
- linear: {out_features: 10}
)";

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

nlohmann::json described(const test::TempFolder& folder, const std::string& arguments) {
  const test::Outcome outcome = test::run_program(folder, "describe " + arguments + " --json");
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  return nlohmann::json::parse(outcome.out);
}

}  // namespace

TEST_CASE("describe lists the layers of a network file with shapes, parameters and operations") {
  const test::TempFolder folder;
  test::write_file(folder / "net.yaml", k_net);
  const auto page = test::run_program(folder, "describe net.yaml");
  CHECK(page.code == 0);
  CHECK(contains(page.out, "repeat_1.1.unit_1.conv2d_1"));
  CHECK(contains(page.out, "6 layers on a sample [8, 8, 3]; 882 parameters (3.4 KiB as float32)"));
  const auto json = described(folder, "net.yaml");
  CHECK(json["parameters"] == 8 * 3 * 9 + 8 * 8 * 9 + 90);
  CHECK(json["layer_count"] == 6);
  REQUIRE(json["layers"].size() == 6);
  const auto& conv = json["layers"][2];
  CHECK(conv["name"] == "repeat_1.1.unit_1.conv2d_1");
  CHECK(conv["type"] == "conv2d");
  CHECK(conv["inputs"] == nlohmann::json::array({"repeat_1.0.unit_1.relu_1"}));
  CHECK(conv["output"] == nlohmann::json::array({8, 8, 8}));
  CHECK(conv["parameters"] == 8 * 8 * 9);
  CHECK(conv["forward_flops"] == 2 * 8 * 8 * 8 * 8 * 9);
}

TEST_CASE("describe takes parameters and the input's shape from the command line") {
  const test::TempFolder folder;
  test::write_file(folder / "net.yaml", k_net);
  CHECK(described(folder, "net.yaml --set depth=3 --set width=4")["layer_count"] == 8);
  CHECK(described(folder, "net.yaml --set network.params.depth=3")["layer_count"] == 8);
  CHECK(described(folder, "net.yaml --set side=4")["input"] == nlohmann::json::array({4, 4, 3}));
  CHECK(described(folder, "net.yaml --input 5,6,3")["input"] == nlohmann::json::array({5, 6, 3}));
  const auto unknown = test::run_program(folder, "describe net.yaml --set dept=3");
  CHECK(unknown.code == 2);
  CHECK(contains(unknown.err, "did you mean \"depth\"?"));
  CHECK(test::run_program(folder, "describe net.yaml --input 5,x,3").code == 2);
  test::write_file(folder / "list.yaml", "[flatten, linear: {out_features: 2}]");
  CHECK(contains(test::run_program(folder, "describe list.yaml").err, "give --input"));
  CHECK(described(folder, "list.yaml --input 12")["parameters"] == 26);
  CHECK(contains(test::run_program(folder, "describe list.yaml --input 12 --set L=2").err, "has no parameters"));
  test::write_file(folder / "tokens.yaml",
                   "input: {tokens: 5, targets: 7}\nlayers: [{shift_tokens: {start: 1, padding: 0}, inputs: target, name: s},\n"
                   "  {embedding: {num_embeddings: 3, embedding_dim: 2}, inputs: s}]\n");
  CHECK(described(folder, "tokens.yaml")["layers"][1]["output"] == nlohmann::json::array({7, 2}));
  CHECK(described(folder, "tokens.yaml --input tokens:6")["layers"][1]["output"] == nlohmann::json::array({6, 2}));
}

TEST_CASE("describe takes a run configuration, and the shape of its data") {
  const test::TempFolder folder;
  test::write_file(folder / "net.yaml", "params: {width: 8}\nlayers: [flatten, linear: {out_features: '${width}'}]\n");
  test::write_file(folder / "run.yaml",
                   "network: {file: net.yaml, params: {width: 4}}\ntrain: {steps: 1}\n"
                   "data: {train: {synthetic: {samples: 64, shape: [4, 4, 1], classes: 4}}}\n");
  CHECK(described(folder, "run.yaml")["parameters"] == 16 * 4 + 4);
  CHECK(described(folder, "run.yaml --set width=6")["parameters"] == 16 * 6 + 6);
  CHECK(described(folder, "run.yaml --set network.params.width=5")["parameters"] == 16 * 5 + 5);
}

TEST_CASE("describe draws the graph with a frame for every block, and folds what is too much to read") {
  const test::TempFolder folder;
  test::write_file(folder / "net.yaml", k_net);
  const auto outcome = test::run_program(folder, "describe net.yaml --dot net.dot --svg net.svg");
  REQUIRE_MESSAGE(outcome.code == 0, outcome.err);
  const std::string dot = test::content_of(folder / "net.dot");
  CHECK(contains(dot, "subgraph \"cluster_repeat_1.0.unit_1\""));
  CHECK(contains(dot, "input -> n0;"));
  CHECK(contains(dot, "n4 -> n5;"));
  CHECK(std::count(dot.begin(), dot.end(), '{') == std::count(dot.begin(), dot.end(), '}'));
  const std::string svg = test::content_of(folder / "net.svg");
  CHECK(contains(svg, "</svg>"));
  CHECK(contains(svg, "conv2d"));
  CHECK(contains(svg, "unit_1"));
  REQUIRE(test::run_program(folder, "describe net.yaml --set depth=400 --svg big.svg --dot top.dot --depth 1").code == 0);
  CHECK(contains(test::content_of(folder / "top.dot"), "repeat_1 (800 layers)"));
  const auto folded = test::run_program(folder, "describe net.yaml --set depth=200 --svg big.svg");
  CHECK(contains(folded.err, "drawn to 3 levels of names of 4"));
}

TEST_CASE("a hundred thousand layers are described in seconds and little memory") {
  const test::TempFolder folder;
  test::write_file(folder / "net.yaml", R"(params: {n: 2000}
input: {shape: [8]}
blocks:
  unit:
    params: {c: }
    inputs: [x, skip]
    outputs: [y, x]
    layers:
    - {linear: {out_features: '${c}'}, inputs: x}
    - repeat: {times: 22, body: [relu]}
    - {add: , inputs: [repeat_1, skip], name: s}
    - {repeat: {times: 26, body: [tanh]}, name: y}
layers:
- {relu: , name: stem}
- {repeat: {times: '${n}', body: [unit: {c: '${2 * 8 - 8}'}]}, inputs: [stem, stem], name: all}
- {linear: {out_features: 2}, inputs: all}
)");
  const auto outcome = test::run_child(folder, {"describe", "net.yaml", "--json"}, [&] {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // a sanitizer needs all the address space there is
    test::limit(RLIMIT_AS, rlim_t{1} << 30);
#endif
    test::limit(RLIMIT_CPU, 30);
  });
  CAPTURE(outcome.err);
  CHECK(outcome.code == 0);
  CHECK(contains(outcome.out, "\"layer_count\":100002"));
  CHECK(contains(outcome.out, fmt::format("\"parameters\":{}", 2000 * 72 + 18)));
}

}  // namespace gpipe::app
