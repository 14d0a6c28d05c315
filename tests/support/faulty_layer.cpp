#include "tests/support/faulty_layer.h"

#include "app/yaml_tree.h"
#include "core/graph/builder.h"
#include "layers/composite_types.h"
#include "layers/layer_types.h"

#include <algorithm>
#include <cstring>

namespace gpipe::test {
namespace {

const Fault* current = nullptr;

class FaultyOperation final : public graph::Operation {
 public:
  graph::Needs needs() const override { return {.inputs = true}; }
  void forward(const graph::ForwardCall& call, const graph::NodeState& /*state*/) override {
    if (!current->backward && call.pass.micro == current->micro && call.pass.recompute == current->recompute)
      throw base::DataError("made to fail");
    std::memcpy(call.output.data, call.inputs[0].data, call.output.bytes());
  }
  void backward_input(const graph::BackwardCall& call, const graph::NodeState& /*state*/) override {
    if (current->backward && call.pass.micro == current->micro) throw base::DataError("made to fail");
    if (call.dx[0]) std::memcpy(call.dx[0].data, call.dy.data, call.dy.bytes());
  }
};

class FaultyLayer final : public graph::Layer {
 public:
  tensor::Shape output_shape(std::span<const tensor::Shape> inputs) const override { return inputs[0]; }
  graph::Cost cost(std::span<const tensor::Shape> /*inputs*/, const tensor::Shape& /*output*/) const override { return {}; }
  std::unique_ptr<graph::Operation> plan(const graph::PlanContext& /*context*/) const override {
    return std::make_unique<FaultyOperation>();
  }
};

}  // namespace

graph::LayerTypes layers_with_fault(const Fault& fault) {
  static const graph::LayerType type = [] {
    graph::LayerType t;
    t.name = "faulty";
    t.make = [](const base::Tree&, const std::string&, base::Problems&) -> std::unique_ptr<graph::Layer> {
      return std::make_unique<FaultyLayer>();
    };
    t.fields = [] { return base::FieldTable{}; };
    return t;
  }();
  current = &fault;
  graph::LayerTypes types = layers::layer_types();
  types.push_back(&type);
  return types;
}

graph::Network network_with_fault(const std::string& yaml, const tensor::Shape& input, int64_t classes, const Fault& fault) {
  base::Problems problems;
  auto network = graph::build_network(app::parse_yaml(yaml, "network"), "network", {}, {input, {}, tensor::DType::i32, classes},
                                      layers_with_fault(fault), layers::composite_types(), problems);
  problems.throw_if_any();
  return network;
}

}  // namespace gpipe::test
