// compile_stage in three steps: decide what backward needs, write the instruction lists over numbered buffers, then lay the
// buffers out by lifetime and put offsets in place of numbers.
#include "core/pipeline/compile_state.h"

#include <algorithm>
#include <map>

namespace gpipe::pipeline {

using graph::Needs;
using graph::Value;

CompileState::CompileState(const CompileInput& input) : in(input) {
  const size_t values = in.network.values.size();
  needed.assign(values, false);
  forward_place.assign(values, {});
  backward_place.assign(values, {});
  activation_in.assign(values, -1);
  gradient_in.assign(values, -1);
  gradient_out.assign(values, -1);
  activations_out.resize(values);
  const auto add_edge = [&](int edge) {
    const EdgePlan& plan = in.edges[static_cast<size_t>(edge)];
    const auto value = static_cast<size_t>(plan.value);
    if (plan.to == in.stage) {
      (plan.gradient ? gradient_in : activation_in)[value] = edge;
      (plan.gradient ? program.gradients_in : program.activations_in).push_back(edge);
    } else if (plan.from == in.stage) {
      if (plan.gradient) gradient_out[value] = edge;
      if (!plan.gradient) activations_out[value].push_back(edge);
      (plan.gradient ? program.gradients_out : program.activations_out).push_back(edge);
    }
  };
  for (size_t edge = 0; edge < in.edges.size(); ++edge) add_edge(static_cast<int>(edge));
  for (int node = in.first_node; node < in.last_node; ++node) {
    if (!participates(node)) continue;
    const Needs needs = operation(node).needs();
    if (needs.inputs)
      for (const int value : node_at(node).inputs) needed[static_cast<size_t>(value)] = true;
    if (needs.output) needed[static_cast<size_t>(node_at(node).output)] = true;
  }
  program.kept_slots = std::max(1, most_live(in.schedule, in.stage, Work::forward, Work::backward));
  program.recomputed_slots = most_live(in.schedule, in.stage, Work::recompute, Work::backward);
}

Place CompileState::outside(int value) const {
  if (in.network.values[static_cast<size_t>(value)].producer >= 0) {
    const int edge = activation_in[static_cast<size_t>(value)];
    return edge < 0 ? Place{} : Place{Place::Kind::edge, edge, 0, 0, 1};
  }
  return {value == in.network.input ? Place::Kind::input : Place::Kind::target, -1, 0, 0, 1};
}

Place CompileState::new_buffer(size_t bytes, Group group) {
  buffers.push_back({{align_up(bytes), 0, -1, 0}, group, -1});
  return {Place::Kind::arena, static_cast<int>(buffers.size()) - 1, 0, 0, 1};
}

Place CompileState::new_tensor(int value, Group group) {
  const Value& v = in.network.values[static_cast<size_t>(value)];
  return new_buffer(static_cast<size_t>(v.shape.with_batch(in.largest_batch).elements()) * tensor::size_of(v.dtype), group);
}

void CompileState::emit(std::vector<Instruction>& list, Timeline timeline, int time, Instruction instruction) {
  const auto touch = [&](const Place& place) {
    if (place.kind != Place::Kind::arena) return;
    Buffer& buffer = buffers[static_cast<size_t>(place.index)];
    if (buffer.group != Group::working) return;
    if (buffer.timeline < 0) {
      buffer.timeline = static_cast<int>(timeline);
      buffer.life.first = time;
    }
    GP_CHECK_EQ(buffer.timeline, static_cast<int>(timeline));
    buffer.life.last = time;
  };
  for (const Operand& operand : instruction.inputs) touch(operand.place);
  for (const Operand& operand : instruction.dx) touch(operand.place);
  touch(instruction.output.place);
  touch(instruction.dy.place);
  touch(instruction.saved);
  touch(instruction.workspace);
  list.push_back(std::move(instruction));
}

namespace {

bool may_overwrite_input(const CompileState& state, const std::vector<Place>& places, int node, bool input_is_needed) {
  const int value = state.node_at(node).inputs.front();
  const Value& v = state.in.network.values[static_cast<size_t>(value)];
  return state.operation(node).needs().in_place && v.producer >= state.in.first_node && v.consumers.size() == 1 &&
         !input_is_needed && places[static_cast<size_t>(value)].kind == Place::Kind::arena;
}

/// A node's forward, its inputs at their places; those that this stage does not make are looked up on first use.
Instruction forward_call(CompileState& state, int node, std::vector<Place>& places) {
  Instruction instruction{.kind = Instruction::Kind::forward, .node = node};
  for (const int value : state.node_at(node).inputs) {
    Place& place = places[static_cast<size_t>(value)];
    if (!place) place = state.outside(value);
    instruction.inputs.push_back({place, value});
  }
  if (const size_t bytes = state.operation(node).workspace_bytes(); bytes > 0)
    instruction.workspace = state.new_buffer(bytes, Group::working);
  return instruction;
}

/// The forward of one micro-batch. `keep`: what backward needs stays in its slot (no recompute).
void write_forward(CompileState& state, std::vector<Instruction>& list, Timeline timeline, bool keep,
                   std::vector<Place>& places) {
  const graph::Network& network = state.in.network;
  places.assign(network.values.size(), {});
  for (int node = state.in.first_node; node < state.in.last_node; ++node) {
    const graph::Node& n = state.node_at(node);
    Instruction instruction = forward_call(state, node, places);
    const auto out = static_cast<size_t>(n.output);
    const auto& edges = state.activations_out[out];
    const bool keep_output = keep && state.needed[out];
    if (node == network.loss_node()) {
      places[out] = {Place::Kind::result, -1, 0, 0, 1};
    } else if (!edges.empty()) {
      places[out] = {Place::Kind::edge, edges.front(), 0, 0, 1};
    } else if (may_overwrite_input(state, places, node, keep && state.needed[static_cast<size_t>(n.inputs.front())])) {
      places[out] = places[static_cast<size_t>(n.inputs.front())];
      if (keep_output) state.buffers[static_cast<size_t>(places[out].index)].group = Group::kept;
    } else {
      places[out] = state.new_tensor(n.output, keep_output ? Group::kept : Group::working);
    }
    instruction.output = {places[out], n.output};
    graph::Operation& operation = state.operation(node);
    if (const size_t saved = operation.saved_bytes(state.in.largest_batch); saved > 0) {
      const bool keep_saved = keep && state.participates(node);
      instruction.saved = state.new_buffer(saved, keep_saved ? Group::kept : Group::working);
      if (keep_saved) state.saved_place[node] = instruction.saved;
    }
    const auto time = [&] { return static_cast<int>(list.size()); };
    state.emit(list, timeline, time(), std::move(instruction));
    const auto copy_out = [&](const Place& to) {
      Instruction copy{.kind = Instruction::Kind::copy, .node = node};
      copy.inputs = {{places[out], n.output}};
      copy.output = {to, n.output};
      state.emit(list, timeline, time(), std::move(copy));
    };
    for (size_t i = 1; i < edges.size(); ++i) copy_out({Place::Kind::edge, edges[i], 0, 0, 1});
    if (timeline == Timeline::evaluate && n.output == network.prediction) copy_out({Place::Kind::prediction, -1, 0, 0, 1});
  }
}

/// Which nodes a recompute must run again: those whose output or saved bytes backward reads, and all that these come from.
std::vector<bool> nodes_to_recompute(const CompileState& state) {
  std::vector<bool> wanted(static_cast<size_t>(state.in.last_node), false);
  for (int node = state.in.last_node - 1; node >= state.in.first_node; --node) {
    const graph::Node& n = state.node_at(node);
    const bool saves = state.participates(node) && state.operation(node).saved_bytes(state.in.largest_batch) > 0;
    const bool again = wanted[static_cast<size_t>(node)] || saves || state.needed[static_cast<size_t>(n.output)];
    wanted[static_cast<size_t>(node)] = again && node != state.in.network.loss_node();
    if (!wanted[static_cast<size_t>(node)]) continue;
    for (const int value : n.inputs)
      if (const int producer = state.in.network.values[static_cast<size_t>(value)].producer; producer >= state.in.first_node)
        wanted[static_cast<size_t>(producer)] = true;
  }
  return wanted;
}

void write_recompute(CompileState& state) {
  const std::vector<bool> wanted = nodes_to_recompute(state);
  const Group group = state.program.recomputed_slots > 1 ? Group::recomputed : Group::working;
  std::vector<Place>& places = state.backward_place;
  std::vector<Instruction>& list = state.program.recompute;
  for (int node = state.in.first_node; node < state.in.last_node; ++node) {
    if (!wanted[static_cast<size_t>(node)]) continue;
    const graph::Node& n = state.node_at(node);
    Instruction instruction = forward_call(state, node, places);
    Place& out = places[static_cast<size_t>(n.output)];
    if (may_overwrite_input(state, places, node, state.needed[static_cast<size_t>(n.inputs.front())]))
      out = places[static_cast<size_t>(n.inputs.front())];
    else
      out = state.new_tensor(n.output, group);
    instruction.output = {out, n.output};
    graph::Operation& operation = state.operation(node);
    if (const size_t saved = operation.saved_bytes(state.in.largest_batch); saved > 0) {
      instruction.saved = state.new_buffer(saved, group);
      state.saved_place[node] = instruction.saved;
    }
    state.emit(list, Timeline::backward, static_cast<int>(list.size()), std::move(instruction));
  }
}

/// Buffers of one group in one slot, one after the other.
size_t lay_out_slot(CompileState& state, Group group) {
  size_t bytes = 0;
  for (Buffer& buffer : state.buffers) {
    if (buffer.group != group) continue;
    buffer.life.offset = bytes;
    bytes += buffer.life.bytes;
  }
  return bytes;
}

void resolve(const CompileState& state, Place& place) {
  if (place.kind != Place::Kind::arena) return;
  const Buffer& buffer = state.buffers[static_cast<size_t>(place.index)];
  const StageProgram& program = state.program;
  place.offset = buffer.life.offset;
  const size_t kept = program.kept_bytes * static_cast<size_t>(program.kept_slots);
  if (buffer.group == Group::kept) {
    place.stride = program.kept_bytes;
    place.slots = program.kept_slots;
  } else if (buffer.group == Group::recomputed) {
    place.offset += kept;
    place.stride = program.recomputed_bytes;
    place.slots = program.recomputed_slots;
  } else {
    place.offset += kept + program.recomputed_bytes * static_cast<size_t>(program.recomputed_slots);
  }
}

void lay_out_buffers(CompileState& state) {
  StageProgram& program = state.program;
  program.kept_bytes = lay_out_slot(state, Group::kept);
  if (program.kept_bytes == 0) program.kept_slots = 0;
  program.recomputed_bytes = lay_out_slot(state, Group::recomputed);
  if (program.recomputed_bytes == 0) program.recomputed_slots = 0;
  for (const Timeline timeline : {Timeline::forward, Timeline::evaluate, Timeline::backward}) {
    std::vector<Lifetime*> pieces;
    for (Buffer& buffer : state.buffers)
      if (buffer.group == Group::working && buffer.timeline == static_cast<int>(timeline)) pieces.push_back(&buffer.life);
    program.working_bytes = std::max(program.working_bytes, lay_out(pieces));
  }
  for (auto* list : {&program.forward, &program.evaluate, &program.recompute, &program.backward})
    for (Instruction& instruction : *list) {
      for (Operand& operand : instruction.inputs) resolve(state, operand.place);
      for (Operand& operand : instruction.dx) resolve(state, operand.place);
      resolve(state, instruction.output.place);
      resolve(state, instruction.dy.place);
      resolve(state, instruction.saved);
      resolve(state, instruction.workspace);
    }
}

}  // namespace

StageProgram compile_stage(const CompileInput& input) {
  CompileState state(input);
  const bool recompute = input.rematerialize == Rematerialize::full;
  std::vector<Place> evaluate_places;
  write_forward(state, state.program.evaluate, Timeline::evaluate, false, evaluate_places);
  write_forward(state, state.program.forward, Timeline::forward, !recompute, state.forward_place);
  if (recompute)
    write_recompute(state);
  else
    state.backward_place = state.forward_place;
  write_backward(state);
  lay_out_buffers(state);
  return std::move(state.program);
}

}  // namespace gpipe::pipeline
