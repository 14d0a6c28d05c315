// Every node on an emulated GPU: against the CPU over the one list of cases, and against itself.
#include "tests/emulated_cuda/emulated.h"
#include "tests/support/node_run.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>

using namespace gpipe;
using namespace gpipe::test;

namespace {

void expect_no_violations() {
  for (const std::string& sentence : emulated::violations()) FAIL_CHECK(sentence);
  emulated::reset();  // ends the threads of streams
}

// Nodes whose every number is one functor's, or a sum in the CPU's order: the same bits. All others sum in another order than
// the CPU, in double where that is ours and in f32 where it is cuBLAS's or cuDNN's.
bool has_bits_of_cpu(const OpCase& c) {
  static const std::set<std::string> types = {
      "embedding",  "positions",  "shift_tokens", "relu",      "leaky_relu", "gelu",  "silu",    "sigmoid",   "tanh",
      "max_pool2d", "avg_pool2d", "upsample",     "pad",       "crop",       "slice", "reshape", "transpose", "flatten",
      "scale",      "clip",       "dropout",      "dropout2d", "drop_path",  "add",   "concat"};
  return types.contains(c.type) && c.arguments.find("learned") == std::string::npos;  // the gradient of a learned scale is a sum
}

// Share of a tensor's largest element (at least of 1), by what is summed: see tests/layers/node_test.cpp, which compares the CPU
// with double precision by the same numbers.
double tolerance_of(const OpCase& c) {
  if (has_bits_of_cpu(c)) return 0;
  return c.type.ends_with("_norm") || (c.type == "attention" && c.large) ? 2e-4 : 2e-5;
}

void expect_close(const Floats& found, const Floats& wanted, double tolerance, const std::string& what) {
  REQUIRE_MESSAGE(found.size() == wanted.size(), what);
  if (tolerance == 0) {
    CHECK_MESSAGE(same_bits(found, wanted), what);
    return;
  }
  double largest = 1;
  for (float x : wanted) largest = std::max(largest, std::abs(static_cast<double>(x)));
  for (size_t i = 0; i < wanted.size(); ++i)
    if (!(std::abs(static_cast<double>(found[i]) - static_cast<double>(wanted[i])) <= tolerance * largest)) {
      FAIL_CHECK(what << "[" << i << "]: " << found[i] << ", on the CPU " << wanted[i]);
      return;
    }
}

void expect_close(const NodeResult& found, const NodeResult& wanted, double tolerance) {
  REQUIRE(found.micros.size() == wanted.micros.size());
  for (size_t m = 0; m < wanted.micros.size(); ++m) {
    expect_close(found.micros[m].output, wanted.micros[m].output, tolerance, "output");
    for (size_t i = 0; i < wanted.micros[m].dx.size(); ++i)
      expect_close(found.micros[m].dx[i], wanted.micros[m].dx[i], tolerance, "dx");
  }
  REQUIRE(found.gradients.size() == wanted.gradients.size());
  for (size_t p = 0; p < wanted.gradients.size(); ++p)
    expect_close(found.gradients[p], wanted.gradients[p], tolerance, "gradient");
  for (size_t b = 0; b < wanted.buffers.size(); ++b) expect_close(found.buffers[b], wanted.buffers[b], tolerance, "buffer");
}

}  // namespace

TEST_CASE("every node computes on a GPU what it does on a CPU, forward and every gradient") {
  for (const OpCase& c : op_cases()) {
    CAPTURE(c.text());
    emulated::reset({.delay_us = 0});
    const NodeData data = make_data(c);
    expect_close(run_node(c, data, {.device = "cuda:0"}), run_node(c, data), tolerance_of(c));
    expect_no_violations();
  }
}

TEST_CASE("evaluation computes on a GPU what it does on a CPU") {
  for (const OpCase& c : op_cases()) {
    CAPTURE(c.text());
    emulated::reset({.delay_us = 0});
    const NodeData data = make_data(c);
    const NodeResult found = run_node(c, data, {.device = "cuda:0", .evaluate = true}),
                     wanted = run_node(c, data, {.evaluate = true});
    for (size_t m = 0; m < wanted.micros.size(); ++m)
      expect_close(found.micros[m].output, wanted.micros[m].output, tolerance_of(c), "output");
    expect_no_violations();
  }
}

TEST_CASE("on a GPU a second run, memory shared in place and a recompute change no bit") {
  for (const OpCase& c : op_cases()) {
    CAPTURE(c.text());
    emulated::reset({.delay_us = 0});
    const NodeData data = make_data(c);
    const NodeResult first = run_node(c, data, {.device = "cuda:0"});
    const bool weighted = c.type.starts_with("conv") || c.type == "linear";
    const NodeResult recomputed = run_node(
        c, data, {.device = "cuda:0", .in_place = true, .gradient_in_place = !c.is_loss() && !weighted, .recompute = true});
    CHECK_FALSE(recomputed.recompute_differed);
    expect_close(recomputed, first, 0);
    expect_no_violations();
  }
}
