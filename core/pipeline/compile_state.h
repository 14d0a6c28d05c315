// What compile.cpp (forward, recompute, layout) and compile_backward.cpp share while one stage is compiled.
#pragma once

#include "core/pipeline/program.h"

#include <map>
#include <vector>

namespace gpipe::pipeline {

/// Which memory a buffer comes from: the working memory that tasks take turns with, or slots (TaskProgram).
enum class Group { working, kept, kept_for_weight, deferred };
/// Recompute and backward of a micro-batch follow each other (with_recompute) and share one timeline.
enum class Timeline { forward, evaluate, backward, weight };

struct Buffer {
  Lifetime life;
  Group group = Group::working;
  TaskProgram* program = nullptr;  // whose slots
  int timeline = -1;
};

struct CompileState {
  explicit CompileState(const CompileInput& input);

  /// Starts the lists of one kind of micro-batch; nothing of another kind is known any more.
  void begin(TaskProgram& task_program);

  const CompileInput& in;
  StageProgram program;
  TaskProgram* current = nullptr;
  bool splits_backward = false;
  std::vector<Buffer> buffers;
  std::vector<bool> leads_to_loss;                            // by node of the network: evaluation runs it
  std::vector<bool> needed;                                   // by value: backward of this stage reads it
  std::vector<bool> kept;                                     // by node of the stage: its results stay
  std::vector<bool> again;                                    // by node of the stage: recomputed
  std::vector<Place> forward_place;                           // by value
  std::vector<Place> backward_place;                          // by value: where backward finds it
  std::map<int, Place> saved_place;                           // by node: where backward finds its saved bytes
  std::vector<int> activation_in, gradient_in, gradient_out;  // by value: edge, or -1
  std::vector<std::vector<int>> activations_out;              // by value: edges, nearest stage first

  const graph::Node& node_at(int node) const { return in.network.nodes[static_cast<size_t>(node)]; }
  graph::Operation& operation(int node) const { return *in.operations[static_cast<size_t>(node - in.first_node)]; }
  bool is_kept(int node) const { return kept[static_cast<size_t>(node - in.first_node)]; }
  bool is_recomputed(int node) const { return again[static_cast<size_t>(node - in.first_node)]; }
  /// Must the value of a kept node be there after the forward?
  bool stays(int value) const;
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
/// Puts offsets in place of the numbers of buffers.
void lay_out_buffers(CompileState& state);

}  // namespace gpipe::pipeline
