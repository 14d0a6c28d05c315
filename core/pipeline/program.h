// The program of a stage: for each kind of task the list of instructions, with every tensor's place in the stage's memory
// known before the first step. Plain data, made by compile_stage, run by Stage.
#pragma once

#include "core/graph/network.h"
#include "core/pipeline/edge.h"
#include "core/pipeline/options.h"
#include "core/pipeline/partition.h"
#include "core/pipeline/schedule.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace gpipe::pipeline {

using tensor::Shape;
using tensor::TensorView;

/// Where a tensor lies. `arena`: offset, plus (micro-batch % slots) * stride; `working`: offset in the memory that the tasks of
/// a device take turns with. The mini-batch's own arrays (samples, targets,
/// results and predictions, [N, ...] on the host) are addressed by the micro-batch's first sample.
struct Place {
  enum class Kind : uint8_t { none, arena, working, edge, input, target, result, prediction };
  Kind kind = Kind::none;
  int index = -1;  // edge: which of the plan's edges; arena, working: the buffer, until the layout is known
  size_t offset = 0;
  size_t stride = 0;
  int slots = 1;
  explicit operator bool() const { return kind != Kind::none; }
};

struct Operand {
  Place place;
  int value = -1;  // gives shape and type
};

struct Instruction {
  enum class Kind : uint8_t { forward, backward_input, backward_weight, add, copy };
  Kind kind;
  int node = -1;                // index in the network
  std::vector<Operand> inputs;  // add: two; copy: one
  Operand output;               // y; add, copy: where to
  Operand dy;
  std::vector<Operand> dx;  // one an input; none where no gradient is wanted
  Place saved;
  Place workspace;
};

struct StageMemory {
  size_t parameters = 0, gradients = 0, optimizer = 0;
  size_t packed = 0;       // the device's own copies of weights, and of their gradients; of narrower buckets those not shared
  size_t buffers = 0;      // running averages, and what gathers them over a mini-batch
  size_t edges = 0;        // slots for what arrives from other stages, and for what has to be sent to them
  size_t activations = 0;  // kept from forward to backward: slots x one micro-batch
  size_t working = 0;      // one micro-batch's forward, recompute and backward, workspaces included; the first stage of a
                           // device has that of the largest, for all of them
  size_t staged = 0;       // the caller's arrays on a device with memory of its own
  size_t fixed() const { return parameters + gradients + optimizer + packed + buffers; }
  size_t total() const { return fixed() + edges + activations + working + staged; }
};

/// Memory of which every micro-batch between two of its tasks has a slot: micro-batch i has slot i % slots.
struct Slots {
  size_t bytes = 0;  // of one slot
  int count = 0;
  size_t offset = 0;
  size_t total() const { return bytes * static_cast<size_t>(count); }
};

/// What the tasks of a micro-batch do.
struct TaskProgram {
  std::vector<Instruction> forward, recompute;
  std::vector<Instruction> backward;         // the whole of it, or backward_input
  std::vector<Instruction> backward_weight;  // empty where backward is whole
  Slots kept;                                // from forward to backward, or backward_input
  Slots kept_for_weight;                     // from forward to backward_weight
  Slots deferred;                            // from recompute, or backward_input, to backward_weight
};

struct StageProgram {
  TaskProgram whole;       // of micro-batches whose activations are all kept
  TaskProgram recomputed;  // of those that Schedule::recomputed names
  std::vector<Instruction> evaluate;
  std::vector<int> activations_in, activations_out, gradients_in, gradients_out;  // edges
  std::vector<int> read_by_weight;  // those of the edges in that backward_weight reads: only then are they free again
  size_t working_bytes = 0;
  size_t evaluate_bytes = 0;  // of these, what the forward of an evaluation needs: the same whatever is kept

  const TaskProgram& of(bool is_recomputed) const { return is_recomputed ? recomputed : whole; }
  size_t activation_bytes() const;
};

/// Everything compile_stage looks at.
struct CompileInput {
  const graph::Network& network;
  int first_node = 0, last_node = 0;  // [first, last)
  int stage = 0;
  const std::vector<EdgePlan>& edges;
  const std::vector<std::shared_ptr<graph::Operation>>& operations;  // of the stage's nodes, in order
  int64_t largest_batch = 1;
  const Schedule& schedule;
  /// Of the stage's nodes: those whose results are kept although the micro-batch is recomputed. Empty: none.
  const std::vector<bool>& keep;
};

/// Offsets of arena places count from the start of the kept slots; Stage moves them behind parameters and edges.
/// Recomputes must stand right before their backward (with_recompute): they share working memory.
StageProgram compile_stage(const CompileInput& input);

/// The edges that the boundaries make: each value goes straight to every later stage that uses it; its gradient comes back
/// from the last user to the one before and so on to the maker, so that it is summed in the order of an uncut network.
std::vector<EdgePlan> make_edges(const graph::Network& network, const Boundaries& boundaries, const Schedule& schedule,
                                 int64_t largest_batch);

/// Gives edges as many slots as the rows need to come to their end: a value that skips stages, or stays on its device, may
/// have to wait longer than its receiver's tasks say. The schedule has passed check_schedule.
void widen_edges(const Schedule& schedule, std::vector<EdgePlan>& edges);

/// A piece of memory in use from instruction `first` to `last` (inclusive).
struct Lifetime {
  size_t bytes = 0;
  int first = 0, last = -1;
  size_t offset = 0;  // out
};
/// Gives overlapping lifetimes disjoint places, largest first, each as low as it fits; returns the bytes needed in all.
size_t lay_out(std::vector<Lifetime*>& pieces);

constexpr size_t k_alignment = 64;
constexpr size_t align_up(size_t bytes) { return (bytes + k_alignment - 1) / k_alignment * k_alignment; }

}  // namespace gpipe::pipeline
