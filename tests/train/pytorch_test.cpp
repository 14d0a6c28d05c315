// A whole training run against PyTorch's: same weights, same data, 20 steps.
#include "app/yaml_tree.h"
#include "tests/support/paths.h"
#include "tests/support/small_run.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>

using namespace gpipe;

namespace {

/// PyTorch's Sequential names a parameter by the index of its layer; ours by the name of the node.
std::string pytorch_name(const graph::Network& network, const pipeline::StateTensor& tensor) {
  const std::string& node = network.nodes[static_cast<size_t>(tensor.node)].name;
  return fmt::format("{}{}", tensor.node, tensor.name.substr(node.size()));
}

}  // namespace

TEST_CASE("a small network follows PyTorch's losses for 20 steps within 1e-5, on one stage and on three") {
  std::ifstream file(test::source_dir() / "tests/reference/training.json");
  const auto reference = nlohmann::json::parse(file);
  std::string yaml;
  for (const auto& layer : reference["network"]) yaml += fmt::format("- {}\n", layer.get<std::string>());
  const graph::Network network = test::network_of(yaml, {6, 6, 2}, 5);
  for (const int64_t partitions : {1, 3}) {
    pipeline::PipelineOptions options;
    options.partitions = partitions;
    base::Problems problems;
    const auto optimizer =
        train::make_optimizer(app::parse_yaml("sgd: {momentum: 0.9, weight_decay: 0.001}", "optimizer"), "optimizer", problems);
    const auto plan = pipeline::make_plan(network, {options, reference["samples"], 1, {}});
    pipeline::Engine engine(*plan);
    test::initialise(engine, *optimizer, 1);
    for (const pipeline::StateTensor* tensor : engine.tensors()) {
      if (tensor->spec == nullptr) continue;
      const auto values = reference["parameters"][pytorch_name(network, *tensor)]["values"].get<std::vector<float>>();
      REQUIRE(static_cast<int64_t>(values.size()) == tensor->value.elements());
      std::copy(values.begin(), values.end(), tensor->value.f32());
    }
    engine.pack();
    auto inputs = reference["inputs"].get<std::vector<float>>();
    auto targets = reference["targets"].get<std::vector<int32_t>>();
    std::vector<float> results(2 * targets.size());
    for (size_t step = 0; step < reference["losses"].size(); ++step) {
      const pipeline::MiniBatch batch{.input = reinterpret_cast<std::byte*>(inputs.data()),
                                      .target = reinterpret_cast<std::byte*>(targets.data()),
                                      .results = results.data(),
                                      .step = static_cast<int64_t>(step),
                                      .seed = 1};
      const std::vector<device::Update> rules(engine.parameter_count(),
                                              optimizer->rule(static_cast<int64_t>(step), reference["learning_rate"], true));
      const auto result = engine.train(batch, rules, 0);
      CAPTURE(step);
      CHECK(result.loss == doctest::Approx(reference["losses"][step].get<double>()).epsilon(1e-5));
    }
    for (const pipeline::StateTensor* tensor : engine.tensors()) {
      const auto name = pytorch_name(network, *tensor);
      CAPTURE(name);
      const auto wanted = reference["final"][name]["values"].get<std::vector<double>>();
      for (size_t i = 0; i < wanted.size(); ++i) CHECK(std::abs(static_cast<double>(tensor->value.f32()[i]) - wanted[i]) < 2e-5);
    }
  }
}
