// Every node of the product against the double-precision references, over the one list of cases.
#include "tests/support/node_run.h"
#include "tests/support/reference.h"

#include <doctest/doctest.h>

#include <cmath>

using namespace gpipe;
using namespace gpipe::test;

namespace {

Numbers to_numbers(const Floats& values) { return Numbers(values.begin(), values.end()); }

// What the references say of a whole mini-batch.
struct Wanted {
  std::vector<Numbers> outputs;
  std::vector<ReferenceGradients> gradients;  // inputs by micro-batch
  std::vector<Numbers> parameters;            // summed
};

Wanted wanted_of(const OpCase& c, const NodeData& data) {
  const auto reference = make_reference(c.type, c.tree(), c.inputs);
  Wanted wanted;
  for (size_t micro = 0; micro < c.micro_batches.size(); ++micro) {
    ReferenceCall call;
    call.samples = c.micro_batches[micro];
    call.pass = pass_of(c, micro);
    for (const Floats& values : data.inputs[micro]) call.inputs.push_back(to_numbers(values));
    for (const Floats& values : data.parameters) call.parameters.push_back(to_numbers(values));
    wanted.outputs.push_back(reference->forward(call));
    wanted.gradients.push_back(reference->backward(call, to_numbers(data.dy[micro])));
    const std::vector<Numbers>& parts = wanted.gradients.back().parameters;
    if (wanted.parameters.empty()) wanted.parameters.resize(parts.size());
    for (size_t p = 0; p < parts.size(); ++p) {
      wanted.parameters[p].resize(parts[p].size());
      for (size_t i = 0; i < parts[p].size(); ++i) wanted.parameters[p][i] += parts[p][i];
    }
  }
  return wanted;
}

// Share of a tensor's largest element (at least of 1): single precision sums of up to a few thousand terms. The gradients of
// norms divide by the deviation of as few as two rows, which magnifies the rounding of the inputs; attention takes the exponent
// of scores that are hundreds here.
double tolerance_of(const OpCase& c) { return c.type.ends_with("_norm") || (c.type == "attention" && c.large) ? 1e-4 : 1e-5; }

void expect_close(const Floats& found, const Numbers& wanted, double tolerance, const std::string& what) {
  REQUIRE_MESSAGE(found.size() == wanted.size(), what);
  double largest = 1;
  for (double x : wanted) largest = std::max(largest, std::abs(x));
  for (size_t i = 0; i < wanted.size(); ++i)
    if (!(std::abs(found[i] - wanted[i]) <= tolerance * largest)) {
      FAIL_CHECK(what << "[" << i << "]: " << found[i] << ", wanted " << wanted[i]);
      return;
    }
}

void expect_close(const OpCase& c, const NodeResult& found, const Wanted& wanted) {
  const double tolerance = tolerance_of(c);
  for (size_t micro = 0; micro < wanted.outputs.size(); ++micro) {
    expect_close(found.micros[micro].output, wanted.outputs[micro], tolerance, "output");
    for (size_t i = 0; i < found.micros[micro].dx.size(); ++i)
      if (!found.micros[micro].dx[i].empty())
        expect_close(found.micros[micro].dx[i], wanted.gradients[micro].inputs[i], tolerance, "dx");
  }
  REQUIRE(found.gradients.size() == wanted.parameters.size());
  for (size_t p = 0; p < wanted.parameters.size(); ++p)
    expect_close(found.gradients[p], wanted.parameters[p], tolerance, "gradient");
}

bool same(const NodeResult& a, const NodeResult& b) {
  const auto all = [](const std::vector<Floats>& x, const std::vector<Floats>& y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), same_bits);
  };
  if (a.micros.size() != b.micros.size() || !all(a.gradients, b.gradients) || !all(a.buffers, b.buffers)) return false;
  for (size_t m = 0; m < a.micros.size(); ++m)
    if (!same_bits(a.micros[m].output, b.micros[m].output) || !all(a.micros[m].dx, b.micros[m].dx)) return false;
  return true;
}

}  // namespace

TEST_CASE("every node computes what its reference does, forward and every gradient") {
  for (const OpCase& c : op_cases()) {
    CAPTURE(c.text());
    const NodeData data = make_data(c);
    expect_close(c, run_node(c, data), wanted_of(c, data));
  }
}

TEST_CASE("two threads compute what the references do, and the same bits twice") {
  for (const OpCase& c : op_cases()) {
    if (!c.large) continue;
    CAPTURE(c.text());
    const NodeData data = make_data(c);
    const NodeResult result = run_node(c, data, {.threads = 2});
    expect_close(c, result, wanted_of(c, data));
    CHECK(same(result, run_node(c, data, {.threads = 2, .shift = 4})));
  }
}

TEST_CASE("a second run, other addresses, memory shared in place and a recompute change no bit") {
  for (const OpCase& c : op_cases()) {
    CAPTURE(c.text());
    const NodeData data = make_data(c);
    const NodeResult first = run_node(c, data);
    CHECK(same(first, run_node(c, data)));
    CHECK(same(first, run_node(c, data, {.shift = 4})));
    CHECK(same(first, run_node(c, data, {.in_place = true})));
    if (!layer_type(c.type).is_loss && !c.type.starts_with("conv") && c.type != "linear")
      CHECK(same(first, run_node(c, data, {.gradient_in_place = true})));
    const NodeResult recomputed = run_node(c, data, {.recompute = true});
    CHECK_FALSE(recomputed.recompute_differed);
    CHECK(same(first, recomputed));
  }
}

TEST_CASE("a node whose input wants no gradient gives the same parameter gradients") {
  for (const OpCase& c : op_cases()) {
    if (make_layer_of(c)->parameters(c.inputs).empty()) continue;
    CAPTURE(c.text());
    const NodeData data = make_data(c);
    const NodeResult with = run_node(c, data), without = run_node(c, data, {.input_gradients = false});
    REQUIRE(with.gradients.size() == without.gradients.size());
    for (size_t p = 0; p < with.gradients.size(); ++p) CHECK(same_bits(with.gradients[p], without.gradients[p]));
  }
}
