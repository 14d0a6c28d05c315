#include "core/pipeline/stage.h"

#include "core/base/error.h"
#include "core/pipeline/link.h"

#include <algorithm>

namespace gpipe::pipeline {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

}  // namespace

Stage::Stage(const Plan& plan, int index)
    : plan_(plan), stage_plan_(plan.stages[static_cast<size_t>(index)]), index_(index), host_(backend().is_host()) {
  try {
    memory_ = backend().allocate(stage_plan_.memory.total());
  } catch (base::Error& error) {
    error.add_context(fmt::format("stage {}", index));
    throw;
  }
  for (int bucket = 0; bucket < plan.buckets(); ++bucket)
    buckets_.push_back({plan.bucket(bucket), plan.bucket(bucket).stages[static_cast<size_t>(index)], {}});
  now_ = &buckets_.front();
  lay_out_fixed_memory();
  for (const Bucket& bucket : buckets_) reserve_views(bucket.stage.program);
  std::byte* const end = memory_->data() + memory_->bytes();
  tied_copy_ = end - tied_copy_bytes(plan, stage_plan_);
  if (host_) return;
  make_mirrors();
  fetch(true);  // running averages have their first values
  clock_ = std::make_unique<QueueClock>(backend());
  staging_ = std::make_unique<Staging>(plan, stage_plan_, end - stage_plan_.memory.staged);
}

void Stage::reserve_views(const StageProgram& program) {
  size_t widest = 1;
  std::vector<const std::vector<Instruction>*> lists{&program.evaluate};
  for (const TaskProgram* tasks : {&program.whole, &program.recomputed})
    lists.insert(lists.end(), {&tasks->forward, &tasks->recompute, &tasks->backward, &tasks->backward_weight});
  for (const auto* list : lists)
    for (const Instruction& instruction : *list) widest = std::max({widest, instruction.inputs.size(), instruction.dx.size()});
  inputs_.reserve(widest);
  dx_.reserve(widest);
}

void Stage::lay_out_fixed_memory() {
  std::byte* next = memory_->data();
  const auto take = [&](const Shape& shape) {
    TensorView view{next, shape, tensor::DType::f32};
    next += align_up(view.bytes());
    return view;
  };
  const auto take_bytes = [&](size_t bytes) {
    std::byte* at = bytes > 0 ? next : nullptr;
    next += align_up(bytes);
    return at;
  };
  nodes_.resize(static_cast<size_t>(stage_plan_.last_node - stage_plan_.first_node));
  std::vector<StateTensor> averages;
  for (int index = stage_plan_.first_node; index < stage_plan_.last_node; ++index) {
    const graph::Node& node = plan_.network.nodes[static_cast<size_t>(index)];
    NodeMemory& memory = nodes_[static_cast<size_t>(index - stage_plan_.first_node)];
    for (const graph::ParameterSpec& spec : node.parameters) {
      const graph::Tie* tie = plan_.network.tie_of(index, static_cast<int>(memory.parameters.size()));
      const bool is_here = tie != nullptr && tie->owner_node >= stage_plan_.first_node;
      memory.parameters.push_back(is_here ? parameter(tie->owner_node, tie->owner_parameter) : take(spec.shape));
      memory.gradients.push_back(take(spec.shape));
      if (tie != nullptr) continue;
      StateTensor tensor{node.name + "." + spec.name, memory.parameters.back(), memory.gradients.back(), {}, &spec, index};
      for (int slot = 0; slot < plan_.optimizer_slots; ++slot) tensor.slots.push_back(take(spec.shape));
      tensors_.push_back(std::move(tensor));
    }
    for (const graph::BufferSpec& spec : node.buffers) {
      memory.buffers.push_back(take(spec.shape));
      averages.push_back({node.name + "." + spec.name, memory.buffers.back(), {}, {}, nullptr, index});
      backend().fill(memory.buffers.back(), spec.initial);
    }
    std::byte* batch_state = take_bytes(operation(index).batch_state_bytes());
    for (Bucket& bucket : buckets_) {
      const graph::Operation& op = *bucket.stage.operations[place_of(index)];
      graph::NodeState state{memory.parameters, memory.gradients, memory.buffers, nullptr, nullptr, batch_state};
      if (&bucket != now_ && op.packs_as_widest()) {
        state.packed_weight = now_->states.back().packed_weight;
        state.packed_gradient = now_->states.back().packed_gradient;
      } else {
        state.packed_weight = take_bytes(op.packed_weight_bytes());
        state.packed_gradient = take_bytes(op.packed_gradient_bytes());
      }
      bucket.states.push_back(state);
    }
  }
  parameter_count_ = tensors_.size();
  tensors_.insert(tensors_.end(), std::make_move_iterator(averages.begin()), std::make_move_iterator(averages.end()));
  tasks_base_ = next + stage_plan_.memory.edges;
  working_base_ = tasks_base_ + stage_plan_.memory.activations;
  GP_CHECK_EQ(static_cast<size_t>(tasks_base_ - memory_->data()) + stage_plan_.memory.activations + stage_plan_.memory.working +
                  stage_plan_.memory.staged,
              memory_->bytes());
}

std::byte* Stage::address(const Place& place, const graph::Pass& pass, const MiniBatch& batch, size_t sample_bytes) const {
  const auto rows = static_cast<size_t>(pass.first_sample) * sample_bytes;
  switch (place.kind) {
    case Place::Kind::none: return nullptr;
    case Place::Kind::working: return working_base_ + place.offset;
    case Place::Kind::arena: return tasks_base_ + place.offset + static_cast<size_t>(pass.micro % place.slots) * place.stride;
    case Place::Kind::edge: {
      const EdgePlan& edge = now_->plan.edges[static_cast<size_t>(place.index)];
      return slots_[static_cast<size_t>(place.index)].slots + static_cast<size_t>(pass.micro % edge.slots) * edge.slot_bytes;
    }
    case Place::Kind::input: return (host_ ? batch.input : staging_->input()) + rows;
    case Place::Kind::target: return (host_ ? batch.target : staging_->target()) + rows;
    case Place::Kind::result: {  // one block of [N, 2] after the other
      const auto block = static_cast<size_t>(place.index) * static_cast<size_t>(plan_.micro_batches.mini_batch) * sample_bytes;
      return (host_ ? reinterpret_cast<std::byte*>(batch.results) : staging_->results()) + block + rows;
    }
    case Place::Kind::prediction: return batch.predictions == nullptr ? nullptr : predictions_of(batch) + rows;
  }
  return nullptr;
}

std::byte* Stage::predictions_of(const MiniBatch& batch) const {
  return host_ ? reinterpret_cast<std::byte*>(batch.predictions) : staging_->predictions();
}

TensorView Stage::view(const Operand& operand, const graph::Pass& pass, const MiniBatch& batch) const {
  if (!operand.place) return {};
  const graph::Value& value = now_->plan.network.values[static_cast<size_t>(operand.value)];
  const size_t sample_bytes = static_cast<size_t>(value.shape.elements()) * tensor::size_of(value.dtype);
  return {address(operand.place, pass, batch, sample_bytes), value.shape.with_batch(pass.samples), value.dtype};
}

void Stage::execute(const Instruction& instruction, const graph::Pass& pass, const MiniBatch& batch, const Task& task) {
  inputs_.clear();
  dx_.clear();
  for (const Operand& operand : instruction.inputs) inputs_.push_back(view(operand, pass, batch));
  for (const Operand& operand : instruction.dx) dx_.push_back(view(operand, pass, batch));
  const TensorView output = view(instruction.output, pass, batch);
  const graph::NodeState& state = this->state(instruction.node);
  std::byte* saved = address(instruction.saved, pass, batch, 0);
  std::byte* workspace = address(instruction.workspace, pass, batch, 0);
  if (observer_ != nullptr) backend().synchronize();
  const auto start = observer_ != nullptr ? Clock::now() : Clock::time_point{};
  switch (instruction.kind) {
    case Instruction::Kind::forward: operation(instruction.node).forward({pass, inputs_, output, saved, workspace}, state); break;
    case Instruction::Kind::backward_input:
    case Instruction::Kind::backward_weight: {
      const graph::BackwardCall call{pass, inputs_, output, saved, view(instruction.dy, pass, batch), dx_, workspace};
      if (instruction.kind == Instruction::Kind::backward_weight) {
        operation(instruction.node).backward_weight(call, state);
        break;
      }
      operation(instruction.node).backward_input(call, state);
      if (plan_.network.nodes[static_cast<size_t>(instruction.node)].is_loss) clear_padding(pass, dx_.front());
      break;
    }
    case Instruction::Kind::add: backend().add(inputs_[0], inputs_[1], output); break;
    case Instruction::Kind::copy:
      if (instruction.output.place.kind == Place::Kind::prediction && batch.prediction_positions != nullptr)
        hand_out(inputs_[0], pass, batch);
      else if (output)
        backend().copy(inputs_[0], output);
      break;
  }
  if (observer_ == nullptr) return;
  backend().synchronize();
  const double seconds = seconds_since(start);
  const bool writes_dx = instruction.kind == Instruction::Kind::backward_input;
  observe(instruction, task, writes_dx ? std::span<const TensorView>(dx_) : std::span(&output, 1), seconds);
}

void Stage::hand_out(const TensorView& predictions, const graph::Pass& pass, const MiniBatch& batch) const {
  const Shape values{predictions.shape[2]};
  const int64_t positions = predictions.shape[1];
  for (int64_t sample = 0; sample < pass.samples; ++sample) {
    const int64_t row = pass.first_sample + sample, position = batch.prediction_positions[row];
    GP_CHECK(position >= 0 && position < positions);
    const TensorView from{predictions.data + static_cast<size_t>((sample * positions + position) * values[0]) * sizeof(float),
                          values};
    backend().copy(from, {predictions_of(batch) + static_cast<size_t>(row * values[0]) * sizeof(float), values});
  }
}

void Stage::clear_padding(const graph::Pass& pass, const TensorView& dx) const {
  const int64_t valid = std::clamp<int64_t>(pass.mini_batch_samples - pass.first_sample, 0, pass.samples);
  if (valid == pass.samples) return;
  const Shape sample = dx.shape.sample();
  const size_t row = static_cast<size_t>(sample.elements()) * tensor::size_of(dx.dtype);
  backend().fill({dx.data + static_cast<size_t>(valid) * row, sample.with_batch(pass.samples - valid), dx.dtype}, 0.0F);
}

void Stage::run_task(const Task& task, const std::vector<Instruction>& list, const MiniBatch& batch, bool training) {
  const auto start = Clock::now();
  queue_beside([&] {
    clock_->start();
    timed_.push_back(task);
  });
  const auto micro = static_cast<size_t>(task.micro);
  graph::Pass pass;
  pass.training = training;
  pass.recompute = task.work == Work::recompute;
  pass.seed = batch.seed;
  pass.step = batch.step;
  pass.micro = task.micro;
  pass.first_sample = plan_.micro_batches.first_sample[micro];
  pass.samples = plan_.micro_batches.sizes[micro];
  pass.mini_batch_samples = batch.samples > 0 ? batch.samples : plan_.micro_batches.mini_batch;
  pass.mini_batch_targets = batch.targets > 0 ? batch.targets : pass.mini_batch_samples;
  pass.progress = batch.progress;
  for (const Instruction& instruction : list) {
    if (aborted_->load(std::memory_order_relaxed)) throw Aborted{};
    pass.node = instruction.node;
    pass.loss_weight = batch.loss_scale * plan_.network.nodes[static_cast<size_t>(instruction.node)].loss_weight;
    try {
      execute(instruction, pass, batch, task);
    } catch (base::Error& error) {
      error.add_context(fmt::format("step {}, stage {}, node {}, micro-batch {}, {}", batch.step, index_,
                                    plan_.network.nodes[static_cast<size_t>(instruction.node)].name, task.micro,
                                    name_of(task.work)));
      throw;
    } catch (const std::exception& error) {
      throw base::BugError("step {}, stage {}, node {}, micro-batch {}, {}: {}", batch.step, index_,
                           plan_.network.nodes[static_cast<size_t>(instruction.node)].name, task.micro, name_of(task.work),
                           error.what());
    }
  }
  queue_beside([&] { clock_->end(); });
  if (!host_) return;
  const auto end = Clock::now();
  busy_seconds_ += std::chrono::duration<double>(end - start).count();
  if (task_observer_ != nullptr && training) task_observer_->task(task, start, end);
}

void Stage::forward_task(int micro, const std::vector<Instruction>& list, const MiniBatch& batch, bool training) {
  const StageProgram& program = now_->stage.program;
  for (const int index : program.activations_in) wait_readable(index, micro);
  for (const int index : program.activations_out) wait_writable(index, micro);
  queue_beside([&] { staging_->wait(micro, batch); });
  run_task({Work::forward, micro, index_}, list, batch, training);
  for (const int index : program.activations_out) publish(index, micro);
  if (!training)
    for (const int index : program.activations_in) release(index, micro);
}

void Stage::backward_task(const Task& task, const TaskProgram& tasks, const MiniBatch& batch) {
  const StageProgram& program = now_->stage.program;
  for (const int index : program.gradients_in) wait_readable(index, task.micro);
  for (const int index : program.gradients_out) wait_writable(index, task.micro);
  run_task(task, tasks.backward, batch, true);
  for (const int index : program.gradients_out) publish(index, task.micro);
  for (const auto* edges : {&program.gradients_in, &program.activations_in})
    for (const int index : *edges)
      if (!std::binary_search(program.read_by_weight.begin(), program.read_by_weight.end(), index)) release(index, task.micro);
}

void Stage::weight_task(const Task& task, const TaskProgram& tasks, const MiniBatch& batch) {
  run_task(task, tasks.backward_weight, batch, true);
  for (const int index : now_->stage.program.read_by_weight) release(index, task.micro);
}

void Stage::train(const Task& task, const MiniBatch& batch) {
  const TaskProgram& program = now_->stage.program.of(plan_.schedule.recomputed(index_, task.micro));
  switch (task.work) {
    case Work::forward: forward_task(task.micro, program.forward, batch, true); break;
    case Work::recompute: run_task(task, program.recompute, batch, true); break;
    case Work::backward:
    case Work::backward_input: backward_task(task, program, batch); break;
    case Work::backward_weight: weight_task(task, program, batch); break;
  }
}

void Stage::evaluate(int micro, const MiniBatch& batch) { forward_task(micro, now_->stage.program.evaluate, batch, false); }

template <class Work>
void Stage::keep_up(int node, bool pack, Work work) {
  try {
    if (observer_ == nullptr) {
      work();
      return;
    }
    backend().synchronize();
    const auto start = Clock::now();
    work();
    backend().synchronize();
    observer_->upkeep(index_, node, pack, seconds_since(start));
  } catch (base::Error& error) {
    error.add_context(fmt::format("node {}", plan_.network.nodes[static_cast<size_t>(node)].name));
    throw;
  }
}

void Stage::finish_gradients() {
  for (int index = stage_plan_.first_node; index < stage_plan_.last_node; ++index)
    keep_up(index, false, [&] { operation(index).finish_gradients(state(index), working_base_); });
}

void Stage::add_tied_gradient(const graph::Tie& tie, const Stage& user) {
  const TensorView& sum = gradient(tie.owner_node, tie.owner_parameter);
  TensorView other = user.gradient(tie.user_node, tie.user_parameter);
  if (!backend().reaches(user.backend())) {
    const TensorView here{tied_copy_, other.shape, other.dtype};
    backend().receive(user.backend(), other, here);
    other = here;
  }
  backend().add(sum, other, sum);
}

void Stage::give_tied_gradient(const graph::Tie& tie, Link& to_owner) {
  to_owner.send_now(gradient(tie.user_node, tie.user_parameter));
}

void Stage::take_tied_gradient(const graph::Tie& tie, Link& from_user) {
  const TensorView& sum = gradient(tie.owner_node, tie.owner_parameter);
  const TensorView here{tied_copy_, sum.shape, sum.dtype};
  from_user.receive_now(here);
  backend().add(sum, here, sum);
}

void Stage::give_tied_parameter(const graph::Tie& tie, Link& to_user) {
  to_user.send_now(parameter(tie.owner_node, tie.owner_parameter));
}

void Stage::take_tied_parameter(const graph::Tie& tie, Link& from_owner) {
  from_owner.receive_now(parameter(tie.user_node, tie.user_parameter));
}

void Stage::copy_tied_parameter(const graph::Tie& tie, const Stage& owner) {
  const TensorView& from = owner.parameter(tie.owner_node, tie.owner_parameter);
  const TensorView& to = parameter(tie.user_node, tie.user_parameter);
  if (from.data != to.data) backend().receive(owner.backend(), from, to);
}

// All at once, unless somebody wants to know what each takes; updates too.
void Stage::sum_gradients(std::span<double> sums_of_squares) {
  squares_.clear();
  for (size_t i = 0; i < parameter_count_; ++i) {
    const StateTensor& tensor = tensors_[i];
    double* const sum = host_ ? &sums_of_squares[i] : staging_->sums() + i;
    if (host_) *sum = 0;  // elsewhere it is since the memory was made
    if (tensor.spec->frozen) continue;
    squares_.push_back({tensor.gradient, sum});
    if (observer_ == nullptr) continue;
    keep_up(tensor.node, false, [&] { backend().sum_of_squares(squares_); });
    squares_.clear();
  }
  if (!squares_.empty()) backend().sum_of_squares(squares_);
}

void Stage::update(std::span<const device::Update> rules) {
  updates_.clear();
  for (size_t i = 0; i < parameter_count_; ++i) {
    const StateTensor& tensor = tensors_[i];
    if (tensor.spec->frozen) continue;
    updates_.push_back({rules[i], tensor.value, tensor.gradient, tensor.slots});
    if (observer_ == nullptr) continue;
    keep_up(tensor.node, false, [&] { backend().update(updates_); });
    updates_.clear();
  }
  if (!updates_.empty()) backend().update(updates_);
}

void Stage::finish_update() {
  for (int index = stage_plan_.first_node; index < stage_plan_.last_node; ++index)
    keep_up(index, false, [&] { operation(index).finish_mini_batch(state(index)); });
  pack();
}

void Stage::swap_averages() {
  for (StateTensor& tensor : tensors_)
    if (tensor.spec != nullptr) backend().swap(tensor.value, tensor.slots.back());
}

void Stage::part_done(TaskObserver::Part part, TaskObserver::Time start) {
  const auto end = Clock::now();
  busy_seconds_ += std::chrono::duration<double>(end - start).count();
  if (task_observer_ != nullptr) task_observer_->part(index_, part, start, end);
}

void Stage::pack() {
  for (int index = stage_plan_.first_node; index < stage_plan_.last_node; ++index)
    keep_up(index, true, [&] {
      for (const Bucket& bucket : buckets_) {
        graph::Operation& op = *bucket.stage.operations[place_of(index)];
        if (&bucket == &buckets_.front() || !op.packs_as_widest()) op.pack(bucket.states[place_of(index)], working_base_);
      }
    });
}

}  // namespace gpipe::pipeline
