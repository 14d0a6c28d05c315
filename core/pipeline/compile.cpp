// compile_stage in three steps: decide what backward needs, write the instruction lists over numbered buffers, then lay the
// buffers out by lifetime and put offsets in place of numbers (compile_layout.cpp).
#include "core/pipeline/compile_state.h"

#include <algorithm>
#include <map>

namespace gpipe::pipeline {

using graph::Needs;
using graph::Value;

CompileState::CompileState(const CompileInput& input) : in(input) {
  const size_t values = in.network.values.size();
  needed.assign(values, false);
  leads_to_loss = in.network.leads_to_loss();
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
  for (const Task& task : in.schedule.rows[static_cast<size_t>(in.schedule.device_of[static_cast<size_t>(in.stage)])])
    splits_backward = splits_backward || (task.stage == in.stage && task.work == Work::backward_weight);
}

void CompileState::begin(TaskProgram& task_program) {
  const size_t values = in.network.values.size();
  current = &task_program;
  forward_place.assign(values, {});
  backward_place.assign(values, {});
  saved_place.clear();
}

bool CompileState::stays(int value) const {
  if (needed[static_cast<size_t>(value)]) return true;
  const auto& consumers = in.network.values[static_cast<size_t>(value)].consumers;
  return std::any_of(consumers.begin(), consumers.end(), [&](int node) { return node < in.last_node && is_recomputed(node); });
}

Place CompileState::outside(int value) const {
  if (in.network.values[static_cast<size_t>(value)].producer >= 0) {
    const int edge = activation_in[static_cast<size_t>(value)];
    return edge < 0 ? Place{} : Place{Place::Kind::edge, edge, 0, 0, 1};
  }
  return {value == in.network.input ? Place::Kind::input : Place::Kind::target, -1, 0, 0, 1};
}

Place CompileState::new_buffer(size_t bytes, Group group) {
  buffers.push_back({{align_up(bytes), 0, -1, 0}, group, current, -1});
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
    if (timeline == Timeline::weight && buffer.group == Group::kept) buffer.group = Group::kept_for_weight;
    if (buffer.group != Group::working) return;
    if (buffer.timeline < 0) {
      buffer.timeline = static_cast<int>(timeline);
      buffer.life.first = time;
    }
    if (timeline == Timeline::weight && buffer.timeline == static_cast<int>(Timeline::backward)) {
      buffer.group = Group::deferred;
      return;
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

/// May the output be written over the input? Not where that is read again, or is no working memory of this pass.
bool may_overwrite_input(const CompileState& state, const std::vector<Place>& places, int node, bool input_is_read_again) {
  const int value = state.node_at(node).inputs.front();
  const Value& v = state.in.network.values[static_cast<size_t>(value)];
  const Place& place = places[static_cast<size_t>(value)];
  return state.operation(node).needs().in_place && v.producer >= state.in.first_node && v.consumers.size() == 1 &&
         !input_is_read_again && place.kind == Place::Kind::arena &&
         state.buffers[static_cast<size_t>(place.index)].group == Group::working;
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

/// Where a node's output goes in a forward: to the loss, to another stage, over its input, or into memory of its own.
Place output_place(CompileState& state, int node, std::vector<Place>& places, bool training) {
  const graph::Node& n = state.node_at(node);
  const auto& edges = state.activations_out[static_cast<size_t>(n.output)];
  if (n.is_loss) return {Place::Kind::result, state.in.network.loss_index(node), 0, 0, 1};
  if (!edges.empty()) return {Place::Kind::edge, edges.front(), 0, 0, 1};
  const bool keep = training && state.is_kept(node) && state.stays(n.output);
  const int input = n.inputs.front();
  const int producer = state.in.network.values[static_cast<size_t>(input)].producer;
  const bool input_stays = training && producer >= state.in.first_node && state.is_kept(producer) && state.stays(input);
  if (!may_overwrite_input(state, places, node, input_stays))
    return state.new_tensor(n.output, keep ? Group::kept : Group::working);
  const Place place = places[static_cast<size_t>(input)];
  if (keep) state.buffers[static_cast<size_t>(place.index)].group = Group::kept;
  return place;
}

/// The forward of one micro-batch. In training, what kept nodes make for backward or recompute stays in its slot.
void write_forward(CompileState& state, std::vector<Instruction>& list, bool training, std::vector<Place>& places) {
  const graph::Network& network = state.in.network;
  const Timeline timeline = training ? Timeline::forward : Timeline::evaluate;
  places.assign(network.values.size(), {});
  for (int node = state.in.first_node; node < state.in.last_node; ++node) {
    const graph::Node& n = state.node_at(node);
    if (!training && !state.leads_to_loss[static_cast<size_t>(node)]) continue;
    Instruction instruction = forward_call(state, node, places);
    const auto out = static_cast<size_t>(n.output);
    places[out] = output_place(state, node, places, training);
    instruction.output = {places[out], n.output};
    graph::Operation& operation = state.operation(node);
    if (const size_t saved = operation.saved_bytes(state.in.largest_batch); saved > 0) {
      const bool keep_saved = training && state.is_kept(node) && state.participates(node);
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
    const auto& edges = state.activations_out[out];
    for (size_t i = 1; i < edges.size(); ++i) copy_out({Place::Kind::edge, edges[i], 0, 0, 1});
    if (!training && n.output == network.prediction) copy_out({Place::Kind::prediction, -1, 0, 0, 1});
  }
}

/// Which nodes a recompute must run again: those not kept whose output or saved bytes backward reads, and all that these
/// come from, as far as it is not kept.
void choose_recomputed(CompileState& state) {
  state.again.assign(state.kept.size(), false);
  for (int node = state.in.last_node - 1; node >= state.in.first_node; --node) {
    const auto at = static_cast<size_t>(node - state.in.first_node);
    const graph::Node& n = state.node_at(node);
    const bool saves = state.participates(node) && state.operation(node).saved_bytes(state.in.largest_batch) > 0;
    const bool wanted = state.again[at] || saves || state.needed[static_cast<size_t>(n.output)];
    state.again[at] = wanted && !state.kept[at] && !n.is_loss;
    if (!state.again[at]) continue;
    for (const int value : n.inputs)
      if (const int producer = state.in.network.values[static_cast<size_t>(value)].producer; producer >= state.in.first_node)
        state.again[static_cast<size_t>(producer - state.in.first_node)] = true;
  }
}

void write_recompute(CompileState& state) {
  std::vector<Place>& places = state.backward_place;
  std::vector<Instruction>& list = state.current->recompute;
  for (int node = state.in.first_node; node < state.in.last_node; ++node) {
    const graph::Node& n = state.node_at(node);
    Place& out = places[static_cast<size_t>(n.output)];
    if (!state.is_recomputed(node)) {
      out = state.forward_place[static_cast<size_t>(n.output)];
      continue;
    }
    Instruction instruction = forward_call(state, node, places);
    if (may_overwrite_input(state, places, node, state.needed[static_cast<size_t>(n.inputs.front())]))
      out = places[static_cast<size_t>(n.inputs.front())];
    else
      out = state.new_tensor(n.output, Group::working);
    instruction.output = {out, n.output};
    graph::Operation& operation = state.operation(node);
    if (const size_t saved = operation.saved_bytes(state.in.largest_batch); saved > 0) {
      instruction.saved = state.new_buffer(saved, Group::working);
      state.saved_place[node] = instruction.saved;
    }
    state.emit(list, Timeline::backward, static_cast<int>(list.size()), std::move(instruction));
  }
}

/// The lists of one kind of micro-batch, `kept` being set.
void write_tasks(CompileState& state, TaskProgram& program) {
  state.begin(program);
  choose_recomputed(state);
  write_forward(state, program.forward, true, state.forward_place);
  write_recompute(state);
  write_backward(state);
}

void check_recomputes_touch(const CompileInput& in) {
  const auto& row = in.schedule.rows[static_cast<size_t>(in.schedule.device_of[static_cast<size_t>(in.stage)])];
  for (size_t at = 0; at < row.size(); ++at) {
    if (row[at].work != Work::recompute || row[at].stage != in.stage) continue;
    GP_CHECK(at + 1 < row.size() && row[at + 1].stage == in.stage && row[at + 1].micro == row[at].micro);
  }
}

}  // namespace

StageProgram compile_stage(const CompileInput& input) {
  check_recomputes_touch(input);
  CompileState state(input);
  const size_t nodes = static_cast<size_t>(input.last_node - input.first_node);
  int recomputed = 0;
  for (int micro = 0; micro < input.schedule.micro_batches; ++micro)
    if (input.schedule.recomputed(input.stage, micro)) ++recomputed;
  std::vector<Place> places;
  write_forward(state, state.program.evaluate, false, places);
  state.kept.assign(nodes, true);
  if (recomputed < input.schedule.micro_batches) write_tasks(state, state.program.whole);
  state.kept = input.keep.empty() ? std::vector<bool>(nodes, false) : input.keep;
  if (recomputed > 0) write_tasks(state, state.program.recomputed);
  lay_out_buffers(state);
  return std::move(state.program);
}

}  // namespace gpipe::pipeline
