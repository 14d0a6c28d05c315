// The backward of one micro-batch: nodes in descending order, and for each value the sum of what its users send back, in
// the order in which an uncut network would add them (last user first).
#include "core/pipeline/compile_state.h"

#include <algorithm>
#include <map>

namespace gpipe::pipeline {
namespace {

class BackwardWriter {
 public:
  explicit BackwardWriter(CompileState& state) : state_(state), gradient_(state.in.network.values.size()) {}

  void write() {
    for (size_t value = 0; value < gradient_.size(); ++value)
      if (const int edge = state_.gradient_in[value]; edge >= 0)
        hold(static_cast<int>(value), {Place::Kind::edge, edge, 0, 0, 1});
    for (int node = state_.in.last_node - 1; node >= state_.in.first_node; --node)
      if (state_.participates(node)) write_node(node);
  }

 private:
  using Key = std::pair<Place::Kind, int>;  // identifies a buffer or an edge

  static Key key(const Place& place) { return {place.kind, place.index}; }
  bool wants_gradient(int value) const { return state_.in.network.values[static_cast<size_t>(value)].wants_gradient; }
  Place& gradient(int value) { return gradient_[static_cast<size_t>(value)]; }

  /// The edge that takes the value's gradient out of this stage, when the value was made elsewhere.
  Place target(int value) const {
    const int edge = state_.gradient_out[static_cast<size_t>(value)];
    return edge < 0 ? Place{} : Place{Place::Kind::edge, edge, 0, 0, 1};
  }
  void hold(int value, const Place& place) {
    gradient(value) = place;
    ++holders_[key(place)];
  }
  void drop(const Place& place) { --holders_[key(place)]; }

  void emit(Instruction instruction) {
    auto& list = state_.current->backward;
    const int time = static_cast<int>(state_.current->recompute.size() + list.size());
    state_.emit(list, Timeline::backward, time, std::move(instruction));
  }

  /// Right here, or in a list of its own; then what it reads stays, and nothing may be written over its dy.
  void emit_weight(int node, const Place& dy) {
    Instruction call = backward_call(node, Instruction::Kind::backward_weight, dy);
    if (!state_.splits_backward) return emit(std::move(call));
    auto& list = state_.current->backward_weight;
    state_.emit(list, Timeline::weight, static_cast<int>(list.size()), std::move(call));
    if (dy) ++holders_[key(dy)];
  }

  void emit_add(int node, int value, const Place& more) {
    const Place before = gradient(value);
    Place sum = target(value);
    if (!sum) sum = holders_[key(before)] == 1 ? before : state_.new_tensor(value, Group::working);
    Instruction add{.kind = Instruction::Kind::add, .node = node};
    add.inputs = {{before, value}, {more, value}};
    add.output = {sum, value};
    emit(std::move(add));
    if (key(sum) == key(before)) return;
    drop(before);
    hold(value, sum);
  }

  /// dx == dy: the gradient of the input is dy itself, wherever that can be shared.
  void pass_through(int node, int value, const Place& dy) {
    if (gradient(value)) return emit_add(node, value, dy);
    if (const Place out = target(value)) {
      Instruction copy{.kind = Instruction::Kind::copy, .node = node};
      copy.inputs = {{dy, value}};
      copy.output = {out, value};
      emit(std::move(copy));
      return hold(value, out);
    }
    hold(value, dy);
  }

  /// Inputs and output as the operation's backward finds them.
  Instruction backward_call(int node, Instruction::Kind kind, const Place& dy) {
    const graph::Node& n = state_.node_at(node);
    const graph::Needs needs = state_.operation(node).needs();
    Instruction call{.kind = kind, .node = node};
    for (const int value : n.inputs) {
      Place place = state_.backward_place[static_cast<size_t>(value)];
      if (!place) place = state_.outside(value);
      const bool integers = state_.in.network.values[static_cast<size_t>(value)].producer < 0;
      call.inputs.push_back({needs.inputs || integers ? place : Place{}, value});
    }
    call.output = {needs.output ? state_.backward_place[static_cast<size_t>(n.output)] : Place{}, n.output};
    call.dy = {dy, n.output};
    if (const auto saved = state_.saved_place.find(node); saved != state_.saved_place.end()) call.saved = saved->second;
    if (const size_t bytes = state_.operation(node).workspace_bytes(); bytes > 0)
      call.workspace = state_.new_buffer(bytes, Group::working);
    return call;
  }

  bool may_overwrite_dy(int node, int value, const Place& dy) {
    const graph::Operation& operation = state_.operation(node);
    return operation.needs().gradient_in_place && !operation.has_backward_weight() && dy && holders_[key(dy)] == 1 &&
           !target(value);
  }

  void write_node(int node) {
    const graph::Node& n = state_.node_at(node);
    const Place dy = gradient(n.output);
    const graph::Operation& operation = state_.operation(node);
    if (operation.needs().pass_through) {
      for (const int value : n.inputs)
        if (wants_gradient(value)) pass_through(node, value, dy);
      return drop(dy);
    }
    Instruction call = backward_call(node, Instruction::Kind::backward_input, dy);
    std::vector<std::pair<int, Place>> to_add;
    bool any = false;
    bool dy_is_gone = false;
    for (size_t k = 0; k < n.inputs.size(); ++k) {
      const int value = n.inputs[k];
      call.dx.push_back({{}, value});
      if (!wants_gradient(value)) continue;
      any = true;
      Place& dx = call.dx.back().place;
      if (gradient(value)) {
        dx = state_.new_tensor(value, Group::working);
        to_add.emplace_back(value, dx);
      } else if (k == 0 && may_overwrite_dy(node, value, dy)) {
        dx = dy;
        gradient(value) = dy;  // the hold passes from the output to the input
        dy_is_gone = true;
      } else {
        dx = target(value);
        if (!dx) dx = state_.new_tensor(value, Group::working);
        hold(value, dx);
      }
    }
    const bool gradients_of_parameters_here = !n.parameters.empty() && !operation.has_backward_weight();
    if (any || gradients_of_parameters_here) emit(std::move(call));
    if (operation.has_backward_weight()) emit_weight(node, dy);
    for (const auto& [value, dx] : to_add) emit_add(node, value, dx);
    if (dy && !dy_is_gone) drop(dy);
  }

  CompileState& state_;
  std::vector<Place> gradient_;  // by value: the sum so far
  std::map<Key, int> holders_;   // how many values have their gradient there
};

}  // namespace

void write_backward(CompileState& state) { BackwardWriter(state).write(); }

}  // namespace gpipe::pipeline
