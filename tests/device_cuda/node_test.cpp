// Every node on an emulated GPU: against the CPU over the one list of cases, and against itself.
#include "core/base/error.h"
#include "tests/emulated_cuda/emulated.h"
#include "tests/support/node_run.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <optional>
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

/// By kernels of ours: as many groups as the convolution has inputs, or the one that a transposed convolution runs backwards.
bool is_depthwise(const OpCase& c) {
  const auto number = [&](const std::string& name) {
    const size_t at = c.arguments.find(name);
    return at == std::string::npos ? 0 : std::stoll(c.arguments.substr(at + name.size()));
  };
  const int64_t groups = number("groups: ");
  return groups > 1 && groups == (c.type == "conv2d" ? c.inputs[0].back() : number("out_channels: "));
}

// The share again, where the factors of both sides are rounded alike and summed in f32. In bf16 and f16 cuDNN rounds what comes
// out once more, to half a unit in its last place; the gradients of all micro-batches are added then. Behind a projection of
// attention a factor that fell close to the middle of two numbers may be the other one. A GPU rounds f32 to tf32 in its own way,
// in attention too, which a CPU does not: the exponents of its softmax are large here.
double tolerance_of(const OpCase& c, device::Precision precision) {
  const double half_unit = precision == device::Precision::bf16 ? 0x1p-8 : 0x1p-11;
  if (precision == device::Precision::tf32) return c.type == "attention" ? 0x1p-5 : 4 * half_unit;
  if (c.type == "attention") return 2 * half_unit;
  const bool by_cudnn = c.type.starts_with("conv") && !is_depthwise(c);
  return 2e-5 + (by_cudnn ? half_unit * static_cast<double>(c.micro_batches.size()) : 0);
}

/// On a CPU; nothing where it has not the precision.
std::optional<NodeResult> wanted_of(const OpCase& c, const NodeData& data, device::Precision precision) {
  try {
    return run_node(c, data, {.precision = precision});
  } catch (const base::ConfigError&) {
    REQUIRE(precision == device::Precision::bf16);
    return std::nullopt;
  }
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

TEST_CASE("with factors of fewer bits products are on a GPU what they are on a CPU, and others than those of f32") {
  std::set<std::string> kinds, of_tf32;
  for (const OpCase& c : op_cases()) {
    if (!c.type.starts_with("conv") && c.type != "linear" && c.type != "attention") continue;
    const std::string kind = c.type + (is_depthwise(c) ? ", depthwise" : "");
    kinds.insert(kind);
    const NodeData data = make_data(c);
    emulated::reset({.delay_us = 0});
    const NodeResult wide = run_node(c, data, {.device = "cuda:0"});
    const bool masked = std::ranges::all_of(wide.gradients[0], [](float x) { return x == 0; });  // attention without a key
    for (const device::Precision precision : {device::Precision::tf32, device::Precision::bf16, device::Precision::f16}) {
      CAPTURE(c.text());
      CAPTURE(std::string(device::name_of(precision)));
      const NodeResult found = run_node(c, data, {.device = "cuda:0", .precision = precision});
      if (const auto wanted = wanted_of(c, data, precision)) expect_close(found, *wanted, tolerance_of(c, precision));
      expect_close(found, run_node(c, data, {.device = "cuda:0", .precision = precision}), 0);
      const bool same =
          same_bits(found.micros[0].output, wide.micros[0].output) || same_bits(found.gradients[0], wide.gradients[0]);
      if (precision != device::Precision::tf32) CHECK((masked || !same));
      if (precision == device::Precision::tf32 && !same) of_tf32.insert(kind);
    }
    expect_no_violations();
  }
  CHECK(of_tf32 == kinds);  // a GPU need not take tf32 for every shape
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
