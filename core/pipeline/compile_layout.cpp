// The last step of compile_stage: a place in memory for every buffer.
#include "core/pipeline/compile_state.h"

#include <algorithm>
#include <set>

namespace gpipe::pipeline {
namespace {

Slots& slots_of(TaskProgram& program, Group group) {
  if (group == Group::kept) return program.kept;
  return group == Group::kept_for_weight ? program.kept_for_weight : program.deferred;
}

/// Most micro-batches of one kind (recomputed or not) that are at once between two works of this stage.
int most_live_of(const CompileState& state, bool recomputed, Work from, Work to) {
  return most_live(state.in.schedule, state.in.stage, from, to,
                   [&](int micro) { return state.in.schedule.recomputed(state.in.stage, micro) == recomputed; });
}

/// Gives the buffers of each group their places in a slot, one after the other, and the groups theirs in the arena.
void lay_out_slots(CompileState& state) {
  size_t offset = 0;
  for (const bool recomputed : {false, true}) {
    TaskProgram& program = recomputed ? state.program.recomputed : state.program.whole;
    for (const Group group : {Group::kept, Group::kept_for_weight, Group::deferred}) {
      Slots& slots = slots_of(program, group);
      for (Buffer& buffer : state.buffers) {
        if (buffer.group != group || buffer.program != &program) continue;
        buffer.life.offset = slots.bytes;
        slots.bytes += buffer.life.bytes;
      }
      const Work from = group == Group::deferred ? Work::backward_input : Work::forward;
      const Work to = group == Group::kept ? Work::backward_input : Work::backward_weight;
      slots.count = slots.bytes == 0 ? 0 : most_live_of(state, recomputed, from, to);
      slots.offset = offset;
      offset += slots.total();
    }
  }
}

/// Working memory of one timeline.
size_t lay_out_timeline(CompileState& state, const TaskProgram* program, Timeline timeline) {
  std::vector<Lifetime*> pieces;
  for (Buffer& buffer : state.buffers)
    if (buffer.group == Group::working && buffer.program == program && buffer.timeline == static_cast<int>(timeline))
      pieces.push_back(&buffer.life);
  return lay_out(pieces);
}

/// Tasks take turns, so the largest timeline counts.
void lay_out_working(CompileState& state) {
  StageProgram& program = state.program;
  program.evaluate_bytes = program.working_bytes = lay_out_timeline(state, nullptr, Timeline::evaluate);
  for (const TaskProgram* tasks : {&program.whole, &program.recomputed})
    for (const Timeline timeline : {Timeline::forward, Timeline::backward, Timeline::weight})
      program.working_bytes = std::max(program.working_bytes, lay_out_timeline(state, tasks, timeline));
}

void resolve(CompileState& state, Place& place) {
  if (place.kind != Place::Kind::arena) return;
  const Buffer& buffer = state.buffers[static_cast<size_t>(place.index)];
  place.offset = buffer.life.offset;
  if (buffer.group == Group::working) {
    place.kind = Place::Kind::working;
    return;
  }
  const Slots& slots = slots_of(*buffer.program, buffer.group);
  place.offset += slots.offset;
  place.stride = slots.bytes;
  place.slots = slots.count;
}

std::vector<int> edges_read(const StageProgram& program) {
  std::set<int> read;
  const auto note = [&](const Place& place) {
    if (place.kind == Place::Kind::edge) read.insert(place.index);
  };
  for (const TaskProgram* tasks : {&program.whole, &program.recomputed})
    for (const Instruction& instruction : tasks->backward_weight) {
      for (const Operand& operand : instruction.inputs) note(operand.place);
      note(instruction.output.place);
      note(instruction.dy.place);
    }
  std::vector<int> in;
  for (const auto* edges : {&program.activations_in, &program.gradients_in})
    std::copy_if(edges->begin(), edges->end(), std::back_inserter(in), [&](int edge) { return read.count(edge) > 0; });
  std::sort(in.begin(), in.end());
  return in;
}

}  // namespace

size_t StageProgram::activation_bytes() const {
  size_t sum = 0;
  for (const TaskProgram* tasks : {&whole, &recomputed})
    sum += tasks->kept.total() + tasks->kept_for_weight.total() + tasks->deferred.total();
  return sum;
}

void lay_out_buffers(CompileState& state) {
  StageProgram& program = state.program;
  lay_out_slots(state);
  lay_out_working(state);
  const auto resolve_list = [&](std::vector<Instruction>& list) {
    for (Instruction& instruction : list) {
      for (Operand& operand : instruction.inputs) resolve(state, operand.place);
      for (Operand& operand : instruction.dx) resolve(state, operand.place);
      for (Place* place : {&instruction.output.place, &instruction.dy.place, &instruction.saved, &instruction.workspace})
        resolve(state, *place);
    }
  };
  resolve_list(program.evaluate);
  for (TaskProgram* tasks : {&program.whole, &program.recomputed})
    for (auto* list : {&tasks->forward, &tasks->recompute, &tasks->backward, &tasks->backward_weight}) resolve_list(*list);
  program.read_by_weight = edges_read(program);
}

}  // namespace gpipe::pipeline
