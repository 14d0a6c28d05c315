#include "core/pipeline/engine.h"

#include "core/device/peers.h"
#include "core/pipeline/plan_parts.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <type_traits>
#include <utility>

namespace gpipe::pipeline {
namespace {

constexpr auto k_between_notices = std::chrono::milliseconds(50);  // looks for what other processes told

/// Stages on CPUs share one memory; the kernel would promise each its arena, and kill the process when they are used.
void check_host_memory(const Plan& plan) {
  size_t wanted = 0;
  int64_t machine = 0;
  for (const StagePlan& stage : plan.stages) {
    if (stage.backend->info().kind != "cpu" || !plan.is_here(stage.device)) continue;
    wanted += stage.memory.total();
    machine = stage.backend->info().memory_bytes;
  }
  if (plan.options.peers) wanted *= static_cast<size_t>(plan.options.peers->on_this_machine());  // about
  if (machine > 0 && wanted > static_cast<size_t>(machine))
    throw base::MemoryError(
        "the arenas of {} stages take {} bytes ({:.1f} GiB), the machine has {:.1f} GiB; try more pipeline.micro_batches, "
        "pipeline.rematerialize: full, "
        "or a smaller train.batch_size (`plan` shows what takes how much)",
        plan.stages.size(), wanted, static_cast<double>(wanted) / 0x1p30, static_cast<double>(machine) / 0x1p30);
}

}  // namespace

template <class F>
void Engine::for_stages_of(int device, F&& function) {
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    if (stages_[stage] == nullptr || plan_.schedule.device_of[stage] != device) continue;
    try {
      function(stage, *stages_[stage]);
    } catch (base::Error& error) {
      error.add_context(fmt::format("stage {}", stage));
      throw;
    }
  }
}

Engine::Engine(const Plan& plan)
    : plan_(plan), edges_(plan.edges.size()), busy_seconds_(static_cast<size_t>(plan.schedule.devices), 0.0) {
  check_host_memory(plan);
  const int stages = static_cast<int>(plan.stages.size());
  for (int device = 0; device < plan.schedule.devices; ++device)
    if (plan.is_here(device)) devices_.push_back(device);
  for (int index = 0; index < stages; ++index) {
    const bool here = plan.is_here(plan.stages[static_cast<size_t>(index)].device);
    stages_.push_back(here ? std::make_unique<Stage>(plan, index) : nullptr);
    remote_.push_back(here ? nullptr : std::make_unique<RemoteTensors>(plan, index, peers()->rank() == 0));
  }
  for (const int device : devices_) {
    const Stage* first = nullptr;
    for_stages_of(device, [&](size_t, Stage& stage) {
      if (first == nullptr) first = &stage;
      stage.share_working_memory(*first);
    });
  }
  open_edges();
  list_tensors();
  for (const graph::Tie& tie : plan.network.ties) {
    const int owner_stage = plan.stage_of(tie.owner_node), user_stage = plan.stage_of(tie.user_node);
    const PlacedTie& placed = ties_.emplace_back(tie, static_cast<size_t>(owner_stage), static_cast<size_t>(user_stage));
    device::Backend &owner = *plan.stages[placed.owner].backend, &user = *plan.stages[placed.user].backend;
    if (plan.is_remote(owner_stage, user_stage) || owner.reaches(user)) continue;
    owner.connect(user);  // for gradients
    user.connect(owner);  // for the parameter
  }
  for (const graph::Node& node : plan.network.nodes)
    if (node.is_loss && &node != &plan.network.nodes.back()) auxiliary_weights_.push_back(node.loss_weight);
  sums_of_squares_.assign(parameter_count_, 0.0);
  rules_.resize(parameter_count_);
  try {
    for (const int device : devices_) threads_.emplace_back([this, device] { thread_main(device); });
  } catch (const std::system_error& error) {
    {
      const std::lock_guard lock(mutex_);
      quit_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    throw base::MemoryError("cannot start the thread of device {} of {}: {}; use fewer partitions", threads_.size(),
                            devices_.size(), error.what());
  }
}

void Engine::list_tensors() {
  const auto tensors_of = [this](size_t stage) -> std::vector<StateTensor>& {
    return stages_[stage] ? stages_[stage]->tensors() : remote_[stage]->tensors();
  };
  const auto parameters_of = [this](size_t stage) {
    return stages_[stage] ? stages_[stage]->parameter_count() : remote_[stage]->parameter_count();
  };
  for (size_t stage = 0; stage < stages_.size(); ++stage) {
    first_parameter_.push_back(parameter_count_);
    parameter_count_ += parameters_of(stage);
    for (size_t i = 0; i < parameters_of(stage); ++i) tensors_.push_back(&tensors_of(stage)[i]);
  }
  for (size_t stage = 0; stage < stages_.size(); ++stage)
    for (size_t i = parameters_of(stage); i < tensors_of(stage).size(); ++i) tensors_.push_back(&tensors_of(stage)[i]);
}

void Engine::open_edges() {
  open_channels();
  std::vector<std::vector<SlotBase>> slots(stages_.size(), std::vector<SlotBase>(edges_.size()));
  std::vector<Channel*> channels(edges_.size(), nullptr);
  for (size_t index = 0; index < edges_.size(); ++index) {
    const EdgePlan& edge = plan_.edges[index];
    const auto from = static_cast<size_t>(edge.from), to = static_cast<size_t>(edge.to);
    std::byte* const received = stages_[to] ? stages_[to]->memory() + edge.offset : nullptr;
    std::byte* const written = stages_[from] && edge.sent ? stages_[from]->memory() + edge.sender_offset : received;
    slots[to][index] = {received, nullptr};
    slots[from][index] = {written, edge.sent ? received : nullptr};
    channels[index] = channel(from, to);
    if (!stages_[from] || !stages_[to]) continue;
    edges_[index].open(edge.slots, *plan_.stages[from].backend, *plan_.stages[to].backend);
    if (edge.sent) plan_.stages[from].backend->connect(*plan_.stages[to].backend);
  }
  for (size_t stage = 0; stage < stages_.size(); ++stage)
    if (stages_[stage]) stages_[stage]->bind(&edges_, std::move(slots[stage]), channels, &aborted_);
}

Engine::~Engine() {
  {
    const std::lock_guard lock(mutex_);
    quit_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  for (const auto& stage : stages_) {
    try {
      if (stage) stage->settle();       // memory that queued work uses must not go
    } catch (const std::exception&) {}  // NOLINT: what failed has been reported, or nobody waits for it any more
  }
}

void Engine::note_busy(int device) {
  double sum = 0;
  for_stages_of(device, [&](size_t, const Stage& stage) { sum += stage.busy_seconds(); });
  busy_seconds_[static_cast<size_t>(device)] = sum;
}

void Engine::thread_main(int device) {
  try {
    bool attached = false;
    for_stages_of(device, [&](size_t, Stage& stage) {
      if (!std::exchange(attached, true)) stage.attach_thread();  // the device's other stages share its backend
    });
  } catch (...) { fail(std::current_exception()); }
  uint64_t seen = 0;
  for (;;) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return quit_ || job_number_ != seen; });
      if (quit_) return;
      seen = job_number_;
      job = job_;
    }
    try {
      job.call(job.object, device);
    } catch (const Aborted&) {
      // Another device failed; its error is the one that counts.
    } catch (...) { fail(std::current_exception()); }
    const std::lock_guard lock(mutex_);
    if (--running_ == 0) idle_.notify_all();
  }
}

void Engine::fail(std::exception_ptr error) {
  bool is_first = false;
  {
    const std::lock_guard lock(mutex_);
    is_first = !first_error_;
    if (is_first) first_error_ = error;
    aborted_.store(true, std::memory_order_release);
  }
  for (Edge& edge : edges_) edge.abort();
  for (const auto& [ends, channel] : channels_) channel->link().abort();
  barrier_.notify_all();
  if (!is_first || peers() == nullptr) return;
  const base::Failure failure = base::failure_of(error);
  peers()->give_up(failure.code, failure.message);  // now: they wait for us, and what ends this engine may wait for them
}

void Engine::dispatch(Job job) {
  if (aborted_ && first_error_) std::rethrow_exception(first_error_);
  for (Edge& edge : edges_) edge.reset();
  std::unique_lock lock(mutex_);
  job_ = job;
  ++job_number_;
  running_ = static_cast<int>(threads_.size());
  wake_.notify_all();
  const auto is_idle = [&] { return running_ == 0; };
  while (peers() != nullptr && !idle_.wait_for(lock, k_between_notices, is_idle)) {
    lock.unlock();  // stages may wait for a process that has given up
    try {
      peers()->check();
    } catch (...) { fail(std::current_exception()); }
    lock.lock();
  }
  idle_.wait(lock, is_idle);
  if (first_error_) std::rethrow_exception(first_error_);
}

template <class F>
void Engine::run_on_all(F&& function) {
  using Function = std::remove_reference_t<F>;
  dispatch({[](void* object, int device) { (*static_cast<Function*>(object))(device); }, &function});
}

template <class F>
void Engine::arrive_and_wait(F&& decision) {
  std::unique_lock lock(mutex_);
  const uint64_t round = barrier_round_;
  if (++arrived_ == static_cast<int>(devices_.size())) {
    arrived_ = 0;
    decision();
    ++barrier_round_;
    barrier_.notify_all();
    return;
  }
  barrier_.wait(lock, [&] { return aborted_ || barrier_round_ != round; });
  if (barrier_round_ == round) throw Aborted{};
}

void Engine::decide() {
  put_together(results_of(*batch_, plan_.network.loss_count()));
  double loss = 0;
  double hits = 0;
  const int64_t samples = batch_->samples > 0 ? batch_->samples : plan_.micro_batches.mini_batch;
  for (int64_t i = 0; i < samples; ++i) {
    loss += static_cast<double>(batch_->results[2 * i]);
    hits += static_cast<double>(batch_->results[2 * i + 1]);
  }
  double auxiliary = 0;
  const float* results = batch_->results;
  for (const double weight : auxiliary_weights_) {
    results += 2 * plan_.micro_batches.mini_batch;
    double sum = 0;
    for (int64_t i = 0; i < samples; ++i) sum += static_cast<double>(results[2 * i]);
    auxiliary += weight * sum;
  }
  double squares = 0;
  for (const double sum : sums_of_squares_) squares += sum;
  const auto targets = static_cast<double>(batch_->targets > 0 ? batch_->targets : samples);
  result_.loss = loss / targets;
  result_.auxiliary_loss = auxiliary / targets;
  result_.hits = static_cast<int64_t>(hits);
  result_.gradient_norm = std::sqrt(squares) / batch_->loss_scale;
  result_.finite = std::isfinite(result_.loss) && std::isfinite(result_.auxiliary_loss) && std::isfinite(result_.gradient_norm);
  const bool clip = clip_norm_ > 0 && result_.gradient_norm > clip_norm_;
  gradient_scale_ =
      (clip ? static_cast<float>(clip_norm_ / result_.gradient_norm) : 1.0F) / static_cast<float>(batch_->loss_scale);
}

void Engine::make_gradients(int device) {
  using enum TaskObserver::Part;
  const auto sums_of = [this](size_t index, Stage& stage) {
    return std::span(sums_of_squares_).subspan(first_parameter_[index], stage.parameter_count());
  };
  for_stages_of(device, [&](size_t index, Stage& stage) {
    stage.part(gradients, [&] {
      stage.finish_gradients();
      if (ties_.empty()) stage.sum_gradients(sums_of(index, stage));
    });
  });
  if (!ties_.empty()) {
    meet(device);
    for (const PlacedTie& placed : ties_)
      for_stages_of(device, [&](size_t index, Stage& stage) { hand_tied_gradient(placed, index, stage); });
    for_stages_of(
        device, [&](size_t index, Stage& stage) { stage.part(gradients, [&] { stage.sum_gradients(sums_of(index, stage)); }); });
  }
  for_stages_of(device, [&](size_t index, Stage& stage) { stage.finish(*batch_, true, sums_of(index, stage)); });
}

void Engine::update(int device) {
  const auto apply = [this](size_t index, Stage& stage) {
    const auto mine = std::span(rules_).subspan(first_parameter_[index], stage.parameter_count());
    for (device::Update& rule : mine) std::visit([this](auto& r) { r.common.gradient_scale = gradient_scale_; }, rule);
    stage.update(mine);
  };
  for_stages_of(device, [&](size_t index, Stage& stage) {
    stage.part(TaskObserver::Part::update, [&] {
      apply(index, stage);
      if (ties_.empty()) stage.finish_update();
    });
  });
  if (ties_.empty()) return;
  meet(device);
  copy_tied_parameters(device);
  for_stages_of(device, [](size_t, Stage& stage) { stage.part(TaskObserver::Part::update, [&] { stage.finish_update(); }); });
}

void Engine::meet(int device) {
  for_stages_of(device, [](size_t, Stage& stage) { stage.settle(); });
  arrive_and_wait([] {});
}

StepResult Engine::train(const MiniBatch& batch, std::span<const device::Update> rules, double clip_norm) {
  GP_CHECK_EQ(rules.size(), parameter_count_);
  const auto start = std::chrono::steady_clock::now();
  std::copy(rules.begin(), rules.end(), rules_.begin());
  batch_ = &batch;
  clip_norm_ = clip_norm;
  arrived_ = 0;
  clear_parts(results_of(batch, plan_.network.loss_count()));
  run_on_all([this](int device) {
    begin(device, *batch_, true);
    for (const Task& task : plan_.schedule.rows[static_cast<size_t>(device)])
      stages_[static_cast<size_t>(task.stage)]->train(task, *batch_);
    make_gradients(device);
    arrive_and_wait([this] { decide(); });
    if (result_.finite) update(device);
    note_busy(device);
  });
  if (peers() != nullptr) share_busy();
  result_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result_;
}

void Engine::begin(int device, const MiniBatch& batch, bool training) {
  for_stages_of(device, [&batch](size_t, Stage& stage) { stage.begin(batch); });
  for (const auto& [ends, channel] : channels_)
    if (ends.from == device || ends.to == device) channel->begin(training);
}

void Engine::evaluate(const MiniBatch& batch) {
  GP_CHECK(peers() == nullptr || batch.predictions == nullptr);  // they would have to come here from the last process
  clear_parts(results_of(batch, 1));
  // The forwards of the rows in their order: what waits for what is a part of what it was in training.
  run_on_all([this, &batch](int device) {
    begin(device, batch, false);
    for (const Task& task : plan_.schedule.rows[static_cast<size_t>(device)])
      if (task.work == Work::forward) stages_[static_cast<size_t>(task.stage)]->evaluate(task.micro, batch);
    for_stages_of(device, [&batch](size_t, Stage& stage) { stage.finish(batch, false, {}); });
    note_busy(device);
  });
  put_together(results_of(batch, 1));
}

void Engine::hand_tied_gradient(const PlacedTie& placed, size_t index, Stage& stage) {
  Channel* to_owner = channel(placed.user, placed.owner);
  if (placed.owner == index && to_owner == nullptr) stage.add_tied_gradient(placed.tie, *stages_[placed.user]);
  if (placed.owner == index && to_owner != nullptr) stage.take_tied_gradient(placed.tie, to_owner->link());
  if (placed.user == index && to_owner != nullptr) stage.give_tied_gradient(placed.tie, to_owner->link());
}

void Engine::copy_tied_parameters(int device) {
  for (const PlacedTie& placed : ties_) {
    Channel* to_user = channel(placed.owner, placed.user);
    for_stages_of(device, [&](size_t index, Stage& stage) {
      if (placed.user == index && to_user == nullptr) stage.copy_tied_parameter(placed.tie, *stages_[placed.owner]);
      if (placed.user == index && to_user != nullptr) stage.take_tied_parameter(placed.tie, to_user->link());
      if (placed.owner == index && to_user != nullptr) stage.give_tied_parameter(placed.tie, to_user->link());
    });
  }
}

void Engine::pack() {
  run_on_all([this](int device) { for_stages_of(device, [](size_t, Stage& stage) { stage.push(); }); });
  take_in_parameters();
}

void Engine::take_in_parameters() {
  run_on_all([this](int device) {
    copy_tied_parameters(device);
    for_stages_of(device, [](size_t, Stage& stage) {
      stage.pack();
      stage.settle();
    });
  });
}

void Engine::swap_averages() {
  run_on_all([this](int device) {
    for_stages_of(device, [](size_t, Stage& stage) {
      stage.swap_averages();
      stage.settle();
    });
  });
  take_in_parameters();
}

void Engine::fetch(bool gradients) {
  run_on_all([this, gradients](int device) { for_stages_of(device, [&](size_t, Stage& stage) { stage.fetch(gradients); }); });
  gather();
}

void Engine::set_observer(InstructionObserver* observer) {
  for (const auto& stage : stages_)
    if (stage) stage->set_observer(observer);
}

void Engine::set_task_observer(TaskObserver* observer) {
  for (const auto& stage : stages_)
    if (stage) stage->set_task_observer(observer);
}

}  // namespace gpipe::pipeline
