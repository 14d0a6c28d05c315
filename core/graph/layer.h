// The page that the author of a layer reads.
//
// A *Layer* describes one node of the network: shapes, parameters, cost. It is immutable and knows no device. An
// *Operation* is a layer planned on a backend for the micro-batch sizes of a run; it holds op plans, never anything of
// one micro-batch, and says what its backward needs so that the stage can plan memory before the first step.
//
// Adding a layer: one file in layers/ with a class in an anonymous namespace and `const LayerType& NAME_layer()`, one
// line in layers/list.def. The tests that walk the list then check its shapes, gradients and recomputation.
#pragma once

#include "core/base/fields.h"
#include "core/base/tree.h"
#include "core/device/backend.h"
#include "core/tensor/tensor.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace gpipe::graph {

using tensor::DType;
using tensor::Shape;
using tensor::TensorView;

/// How a parameter starts. A pure function of (seed, parameter name, element); orthogonal: of (seed, name, whole matrix).
struct Init {
  enum class Kind { constant, uniform, normal, truncated_normal, eye, dirac, orthogonal, sparse };
  Kind kind = Kind::constant;
  double value = 0;           // constant: the value; uniform: the middle; normal kinds: the mean
  double magnitude = 0;       // uniform: half the width; normal kinds, sparse: the standard deviation; others: a factor
  double low = -2, high = 2;  // truncated_normal: in standard deviations from the mean
  double sparsity = 0;        // sparse: share of zeros in every column
  int64_t groups = 1;         // dirac
  int64_t zero_row = -1;      // this row of the first axis is zero (the vector of padding); -1: none
};

struct ParameterSpec {
  std::string name;  // "weight", "bias": PyTorch's name and layout
  Shape shape;
  Init init;
  bool decays = true;   // weight decay applies (not to biases and norms, unless the user says so)
  bool frozen = false;  // stays as it is initialised or loaded
  std::string tied_to;  // the parameter that this one is, "embedding_1.weight"; empty: its own (Network::ties)
};

/// State that is saved but not trained: running averages.
struct BufferSpec {
  std::string name;
  Shape shape;
  float initial = 0;
};

/// Per sample; `flops` counts a multiply-add as two.
struct Cost {
  int64_t forward_flops = 0;
  int64_t backward_input_flops = 0;
  int64_t backward_weight_flops = 0;
};

/// All that an operation may know of "now".
struct Pass {
  bool training = true;
  bool recompute = false;  // a second forward of the same micro-batch: count nothing twice
  uint64_t seed = 0;
  int64_t step = 0;
  int micro = 0;                   // index of the micro-batch, ascending within a mini-batch
  int64_t first_sample = 0;        // index in the mini-batch of the micro-batch's first sample
  int64_t samples = 0;             // of this micro-batch
  int64_t mini_batch_samples = 0;  // of the whole mini-batch
  int64_t mini_batch_targets = 0;  // of the whole mini-batch: what the loss is averaged over (samples, or real tokens)
  double progress = 0;             // share of the run's steps that are done, [0, 1)
  int64_t node = 0;                // index in the network's node list; the same for every partition
  double loss_weight = 1;          // of the node, if it is a loss; times what scales all losses
};

/// Parameters of one node as its stage holds them, in the order of Layer::parameters / buffers.
struct NodeState {
  std::span<const TensorView> parameters;
  std::span<const TensorView> gradients;  // accumulated over the mini-batch
  std::span<const TensorView> buffers;
  std::byte* packed_weight = nullptr;    // Operation::packed_weight_bytes()
  std::byte* packed_gradient = nullptr;  // Operation::packed_gradient_bytes()
  std::byte* batch_state = nullptr;      // Operation::batch_state_bytes(): gathered over a mini-batch
};

/// What backward reads, and what memory may be shared. Indices are positions in Layer inputs.
struct Needs {
  bool output = false;             // backward reads y
  bool inputs = false;             // backward (either half) reads the inputs
  bool in_place = false;           // y may be the memory of input 0
  bool gradient_in_place = false;  // dx of input 0 may be the memory of dy
  bool pass_through = false;       // dx == dy for every input, bit for bit (add, flatten): backward_input is never called
};

struct ForwardCall {
  const Pass& pass;
  std::span<const TensorView> inputs;
  TensorView output;
  std::byte* saved;      // saved_bytes(samples), kept from forward to backward
  std::byte* workspace;  // workspace_bytes()
};

struct BackwardCall {
  const Pass& pass;
  std::span<const TensorView> inputs;  // null views unless Needs::inputs (integer targets are always there)
  TensorView output;                   // null unless Needs::output
  std::byte* saved;                    // backward_input may turn it into what backward_weight of the same micro-batch reads
  TensorView dy;                       // null view for a loss
  std::span<const TensorView> dx;      // one an input; a null view where nobody wants that gradient
  std::byte* workspace;
};

class Operation {
 public:
  Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;
  virtual ~Operation() = default;

  virtual Needs needs() const = 0;
  virtual size_t workspace_bytes() const { return 0; }
  virtual size_t saved_bytes(int64_t /*samples*/) const { return 0; }
  virtual size_t packed_weight_bytes() const { return 0; }
  virtual size_t packed_gradient_bytes() const { return 0; }
  virtual size_t batch_state_bytes() const { return 0; }
  /// Planned with PlanContext::widest_inputs: does it read the packed copies of the operation planned for those? Else a narrower
  /// bucket holds its own.
  virtual bool packs_as_widest() const { return packed_weight_bytes() + packed_gradient_bytes() == 0; }

  virtual void forward(const ForwardCall& call, const NodeState& state) = 0;
  /// Writes (never adds to) every non-null dx. Parameter gradients of norms may be added here, micro-batch 0 overwriting.
  virtual void backward_input(const BackwardCall& call, const NodeState& state) = 0;
  /// Parameter gradients: micro-batch 0 overwrites, later ones add. Called after backward_input of the same micro-batch.
  virtual void backward_weight(const BackwardCall& /*call*/, const NodeState& /*state*/) {}
  virtual bool has_backward_weight() const { return false; }

  /// After the parameters changed (initialised, loaded, updated): refresh packed copies.
  virtual void pack(const NodeState& /*state*/, std::byte* /*workspace*/) {}
  /// After the last backward of a mini-batch: packed gradient -> plain gradient.
  virtual void finish_gradients(const NodeState& /*state*/, std::byte* /*workspace*/) {}
  /// With the update of a mini-batch: running averages.
  virtual void finish_mini_batch(const NodeState& /*state*/) {}
};

/// What planning an operation is told.
struct PlanContext {
  device::Backend& backend;
  const device::Batches& batches;         // micro-batch sizes, largest first
  std::span<const Shape> inputs;          // sample shapes
  Shape output;                           // sample shape
  std::span<const bool> input_gradients;  // which inputs want a gradient (never those that come from the data)
  /// For a narrower bucket (Plan::narrower): sample shapes of the widest one, which share their weights; empty for the widest.
  std::span<const Shape> widest_inputs = {};
};

class Layer {
 public:
  Layer() = default;
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;
  virtual ~Layer() = default;

  /// Sample shapes in, sample shape out. Throws ConfigError naming both shapes; the caller adds the node and its line.
  virtual Shape output_shape(std::span<const Shape> inputs) const = 0;
  /// The type of the output. Throws ConfigError for inputs of another type than the layer takes; numbers alone, unless
  /// overridden.
  virtual DType output_type(std::span<const DType> inputs) const;
  virtual std::vector<ParameterSpec> parameters(std::span<const Shape> /*inputs*/) const { return {}; }
  virtual std::vector<BufferSpec> buffers(std::span<const Shape> /*inputs*/) const { return {}; }
  /// May the operation be given parameters for longer inputs, of whose first axis it uses the head (a table of positions)?
  virtual bool uses_head_of_parameters() const { return false; }
  virtual Cost cost(std::span<const Shape> inputs, const Shape& output) const = 0;
  virtual std::unique_ptr<Operation> plan(const PlanContext& context) const = 0;
};

/// One row of the list of layers: how a node type is called, documented and made.
struct LayerType {
  std::string name;     // "conv2d"
  std::string summary;  // one sentence for the reference
  int min_inputs = 1, max_inputs = 1;
  bool is_loss = false;  // takes (prediction, target); train.loss names it
  /// Reads the arguments (a map, or null); faults go to `problems`, and null may be returned then.
  std::unique_ptr<Layer> (*make)(const base::Tree& arguments, const std::string& path, base::Problems& problems);
  base::FieldTable (*fields)();  // of the arguments
};

}  // namespace gpipe::graph
