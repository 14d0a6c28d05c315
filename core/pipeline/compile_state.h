// What compile.cpp (forward, recompute, layout) and compile_backward.cpp share while one stage is compiled.
#pragma once

#include "core/pipeline/program.h"

#include <map>
#include <vector>

namespace gpipe::pipeline {

/// Which memory a buffer comes from: a slot that lives from forward to backward, one that lives from recompute to backward,
/// or the working memory that tasks take turns with.
enum class Group { working, kept, recomputed };
/// Recompute and backward of a micro-batch follow each other and share one timeline.
enum class Timeline { forward, evaluate, backward };

struct Buffer {
  Lifetime life;
  Group group = Group::working;
  int timeline = -1;
};

struct CompileState {
  explicit CompileState(const CompileInput& input);

  const CompileInput& in;
  StageProgram program;
  std::vector<Buffer> buffers;
  std::vector<bool> needed;                                   // by value: backward of this stage reads it
  std::vector<Place> forward_place;                           // by value
  std::vector<Place> backward_place;                          // by value: where backward finds it
  std::map<int, Place> saved_place;                           // by node: where backward finds its saved bytes
  std::vector<int> activation_in, gradient_in, gradient_out;  // by value: edge, or -1
  std::vector<std::vector<int>> activations_out;              // by value: edges, nearest stage first

  const graph::Node& node_at(int node) const { return in.network.nodes[static_cast<size_t>(node)]; }
  graph::Operation& operation(int node) const { return *in.operations[static_cast<size_t>(node - in.first_node)]; }
  /// Does a gradient flow through this node?
  bool participates(int node) const { return in.network.values[static_cast<size_t>(node_at(node).output)].wants_gradient; }
  /// Place of a value that this stage does not make: the mini-batch, or an edge; none for one that it makes.
  Place outside(int value) const;
  Place new_buffer(size_t bytes, Group group);
  Place new_tensor(int value, Group group);
  /// Appends, and notes that its buffers are in use at `time`.
  void emit(std::vector<Instruction>& list, Timeline timeline, int time, Instruction instruction);
};

void write_backward(CompileState& state);

}  // namespace gpipe::pipeline
