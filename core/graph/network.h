// The network as a flat graph: nodes in topological order, values as edges. Composites of the configuration (sequential,
// residual, repeat, concat) and blocks are expanded while it is read; nothing of them is left but the names.
#pragma once

#include "core/graph/layer.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace gpipe::graph {

using LayerTypes = std::vector<const LayerType*>;
struct CompositeType;  // core/graph/builder.h
using CompositeTypes = std::vector<const CompositeType*>;

struct Value {
  Shape shape;  // of a sample
  DType dtype = DType::f32;
  int producer = -1;            // node index; -1: comes from the data
  std::vector<int> consumers;   // node indices, ascending; a node that uses it twice stands twice
  bool wants_gradient = false;  // depends on a parameter
};

struct Node {
  std::string name;  // "block1.conv2d_0": unique; parameters are name + "." + theirs
  std::string type;  // "conv2d"
  std::unique_ptr<Layer> layer;
  std::vector<int> inputs;  // value indices
  int output = -1;          // value index
  base::Location where;
  std::vector<ParameterSpec> parameters;
  std::vector<BufferSpec> buffers;
  Cost cost;                        // per sample
  bool is_loss = false;             // the main loss, which is the last node, or an auxiliary one
  double loss_weight = 1;           // of an auxiliary loss
  int64_t parameter_count() const;  // without those tied to another node's
};

/// `cost:` of an entry of the network's own list: of all the nodes [first, last) that it became. Any unit; above 0.
struct GivenCost {
  int first_node = 0, last_node = 0;
  double cost = 0;
};

/// A parameter that is another node's (embedding and output of a language model): one tensor, whose gradient is the sum of what
/// all its users give, the owner first, then ascending nodes, added once a mini-batch.
struct Tie {
  int owner_node = 0, owner_parameter = 0;
  int user_node = 0, user_parameter = 0;  // a later node
};

/// Owns its layers. Immutable once built; shared by all threads. The last node is the loss.
struct Network {
  std::vector<Node> nodes;
  std::vector<Value> values;
  int input = 0;                       // value 0: the samples
  int target = 1;                      // value 1: classes (or a token's at each position) or values to predict
  int prediction = -1;                 // value that the loss reads
  std::vector<Tie> ties;               // ascending by user
  std::vector<GivenCost> given_costs;  // of all entries in order, or empty; they override measured and estimated ones

  int loss_node() const { return static_cast<int>(nodes.size()) - 1; }
  int64_t parameter_count() const;
  const Tie* tie_of(int node, int parameter) const;  // null: the node's own
  int loss_count() const;                            // 1 + auxiliary losses
  int loss_index(int node) const;                    // 0: the main loss; auxiliary ones from 1, ascending
  /// By node: does the main loss depend on it? The others belong to auxiliary losses, and evaluation leaves them out.
  std::vector<bool> leads_to_loss() const;
  /// Parameters whose whole name `is_frozen` stay as they are; no gradient is computed before the first that does not.
  void freeze(const std::function<bool(const std::string&)>& is_frozen);
};

/// What the data says about its samples.
struct SampleShapes {
  Shape input;  // [H, W, C] or [F]; [T] of token ids where input_type is i32
  Shape target;
  DType target_type = DType::i32;
  int64_t classes = 0;
  DType input_type = DType::f32;
};

/// Expands a network definition (core/graph/definition.h), a map or a plain list, and appends the loss. All faults go to
/// `problems`; the result is usable only if there were none.
Network build_network(const base::Tree& definition, const std::string& path, const base::Tree& loss, const SampleShapes& data,
                      const LayerTypes& types, const CompositeTypes& composites, base::Problems& problems);
/// The same without a loss, for looking at: it has no loss_node(), and needs no parameters.
Network build_layers(const base::Tree& definition, const std::string& path, const SampleShapes& data, const LayerTypes& types,
                     const CompositeTypes& composites, base::Problems& problems);

/// `narrower` is the definition of `widest` built for smaller samples: it takes over the parameters' shapes, so that both run on
/// one set of weights. A node whose weights depend on the samples' shape is a problem.
void share_parameters(const Network& widest, Network& narrower, base::Problems& problems);

}  // namespace gpipe::graph
