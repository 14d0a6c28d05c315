// Every node of the product against numbers made with PyTorch: tests/reference/make_reference.py wrote them.
#include "layers/layer_types.h"
#include "tests/support/node_run.h"
#include "tests/support/paths.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <fstream>
#include <set>

using namespace gpipe;
using namespace gpipe::test;

namespace {

using nlohmann::json;

const json& stored_cases() {
  static const json all = json::parse(std::ifstream(source_dir() / "tests" / "reference" / "nodes.json"));
  return all["cases"];
}

OpCase case_of(const json& entry) {
  OpCase c{entry["type"], entry["arguments"], {}, {entry["samples"].get<int64_t>()}};
  for (const json& shape : entry["shapes"]) {
    const std::vector<int64_t> extents = shape;
    c.inputs.emplace_back(std::span<const int64_t>(extents));
  }
  for (const json& input : entry["integers"]) c.ids.push_back({.input = input});
  return c;
}

// A loss has no dy of its own: its backward means the average over the targets.
NodeData data_of(const json& entry, const OpCase& c) {
  NodeData data;
  data.inputs.push_back(entry["inputs"].get<std::vector<Floats>>());
  data.parameters = entry["parameters"].get<std::vector<Floats>>();
  data.dy.push_back(c.is_loss() ? Floats(static_cast<size_t>(2 * c.micro_batches[0]), 0.0F) : entry["dy"].get<Floats>());
  data.targets = entry.value("targets", c.micro_batches[0]);
  return data;
}

// Both sides sum in single precision: 1e-5 of the largest element, at least of 1.
void expect_close(const Floats& found, const Floats& wanted, const std::string& what) {
  REQUIRE_MESSAGE(found.size() == wanted.size(), what);
  float largest = 1;
  for (float x : wanted) largest = std::max(largest, std::abs(x));
  for (size_t i = 0; i < wanted.size(); ++i)
    if (!(std::abs(found[i] - wanted[i]) <= 1e-5F * largest))
      FAIL_CHECK(what << "[" << i << "]: " << found[i] << ", PyTorch's " << wanted[i]);
}

}  // namespace

TEST_CASE("every node computes what PyTorch does, forward, every gradient and running averages") {
  for (const json& entry : stored_cases()) {
    const OpCase c = case_of(entry);
    CAPTURE(c.text());
    const NodeResult result = run_node(c, data_of(entry, c));
    if (c.is_loss()) {
      Floats losses;
      for (size_t i = 0; i < result.micros[0].output.size(); i += 2) losses.push_back(result.micros[0].output[i]);
      expect_close(losses, entry["losses"], "loss");
    } else {
      expect_close(result.micros[0].output, entry["output"], "output");
    }
    for (size_t i = 0; i < result.micros[0].dx.size(); ++i)
      if (!result.micros[0].dx[i].empty()) expect_close(result.micros[0].dx[i], entry["dx"][i], "dx");
    for (size_t p = 0; p < result.gradients.size(); ++p) expect_close(result.gradients[p], entry["gradients"][p], "gradient");
    for (size_t b = 0; b < result.buffers.size(); ++b) expect_close(result.buffers[b], entry["buffers"][b], "running average");
  }
}

TEST_CASE("PyTorch's numbers cover every node type but dropouts, whose random numbers differ") {
  std::set<std::string> covered = {"dropout", "dropout2d", "drop_path"};
  for (const json& entry : stored_cases()) covered.insert(entry["type"].get<std::string>());
  for (const graph::LayerType* type : layers::layer_types()) {
    CAPTURE(type->name);
    CHECK(covered.count(type->name) == 1);
  }
}
