// Runs one node of the product alone through a mini-batch, as a stage would, and gives back everything it computed.
#pragma once

#include "core/device/precision.h"
#include "tests/support/op_cases.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace gpipe::test {

using Floats = std::vector<float>;

/// Numbers for a case, a pure function of it. `inputs[micro][input]`; integer inputs as whole numbers.
struct NodeData {
  std::vector<std::vector<Floats>> inputs;
  std::vector<Floats> dy;  // per micro-batch; for losses what backward means: [1 / targets, 0] a sample
  int64_t targets = 0;     // of the mini-batch: samples, or positions whose target is not ignored
  std::vector<Floats> parameters;
};
NodeData make_data(const OpCase& c);

struct NodeOptions {
  std::string device = "cpu";
  int threads = 1;
  device::Precision precision = device::Precision::f32;
  bool in_place = false;           // output over input 0, where the operation allows it
  bool gradient_in_place = false;  // dx of input 0 over dy, likewise
  bool recompute = false;          // forward a second time before backward; the result says whether it differed
  size_t shift = 0;                // bytes that every value is moved off its alignment
  bool input_gradients = true;
  bool evaluate = false;  // forward only, training = false
};

struct MicroResult {
  Floats output;
  std::vector<Floats> dx;
};

struct NodeResult {
  std::vector<MicroResult> micros;
  std::vector<Floats> gradients;  // of the mini-batch
  std::vector<Floats> buffers;    // after it
  bool recompute_differed = false;
  bool operator==(const NodeResult&) const = default;
};

NodeResult run_node(const OpCase& c, const NodeData& data, const NodeOptions& options = {});
/// Sum of dy * output over a mini-batch's forward passes in training, of the numbers that `data` holds at each call. Both must
/// outlive it.
std::function<double()> make_loss(const OpCase& c, const NodeData& data, const NodeOptions& options);

/// The pass of micro-batch `micro` as run_node gives it.
graph::Pass pass_of(const OpCase& c, size_t micro);
const graph::LayerType& layer_type(const std::string& name);
std::unique_ptr<graph::Layer> make_layer_of(const OpCase& c);

/// Bit for bit, so that NaN equals itself and 0 does not equal -0.
bool same_bits(const Floats& a, const Floats& b);

}  // namespace gpipe::test
