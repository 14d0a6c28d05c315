// Stage: one partition at work: its arena, its parameters, and the instructions of its tasks.
//
// Owned by the engine. Everything but the constructor and parameters() runs on the stage's own thread; parameters() may be
// read and written by others while the engine is idle.
#pragma once

#include "core/base/error.h"
#include "core/pipeline/mini_batch.h"
#include "core/pipeline/plan.h"
#include "core/pipeline/queue_clock.h"
#include "core/pipeline/staging.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace gpipe::pipeline {

/// A trained tensor, or a running average (then gradient and slots are empty), in memory of the host.
struct StateTensor {
  std::string name;  // whole-model name: "block1.conv2d_1.weight"
  TensorView value;
  TensorView gradient;
  std::vector<TensorView> slots;
  const graph::ParameterSpec* spec = nullptr;  // null for running averages
  int node = -1;
};

/// Told after every instruction when there is one (verify, profile); null in a plain run.
class InstructionObserver {
 public:
  InstructionObserver() = default;
  InstructionObserver(const InstructionObserver&) = delete;
  InstructionObserver& operator=(const InstructionObserver&) = delete;
  virtual ~InstructionObserver() = default;
  /// Whether it reads the outputs: on a device with memory of its own they are copied for it then, else null.
  virtual bool reads_outputs() const { return false; }
  /// On the stage's thread. `outputs`: what was written (y, or each dx in turn); null views are left out.
  virtual void instruction(int stage, const Task& task, const Instruction& what, std::span<const TensorView> outputs,
                           double seconds) = 0;
  /// Work of a node between mini-batches: `pack`, or all that belongs to the update. On the stage's thread.
  virtual void upkeep(int /*stage*/, int /*node*/, bool /*pack*/, double /*seconds*/) {}
};

/// Told when a task of a training step has run, and each part of what follows the last one; null in a plain run. The times
/// are those of the work alone: waiting for other stages is not in them.
class TaskObserver {
 public:
  using Time = std::chrono::steady_clock::time_point;
  enum class Part : uint8_t { gradients, update };  // gradients made ready; weights updated and packed
  TaskObserver() = default;
  TaskObserver(const TaskObserver&) = delete;
  TaskObserver& operator=(const TaskObserver&) = delete;
  virtual ~TaskObserver() = default;
  /// On the thread of the task's stage.
  virtual void task(const Task& task, Time start, Time end) = 0;
  virtual void part(int stage, Part part, Time start, Time end) = 0;
};

/// Where a stage finds the slots of an edge: its own, or the other stage's. `send_to`: where what it wrote has to go.
struct SlotBase {
  std::byte* slots = nullptr;
  std::byte* send_to = nullptr;
};

class Channel;
class Link;

class Stage {
 public:
  /// Allocates the arena. Throws MemoryError naming the stage and its table.
  Stage(const Plan& plan, int index);

  /// Before the first task: the plan's edges, where this stage finds their slots, through which channels they go if their other
  /// end is in another process, and the flag that says another stage has failed.
  void bind(std::vector<Edge>* edges, std::vector<SlotBase> slots, std::vector<Channel*> channels,
            const std::atomic<bool>* aborted) {
    edges_ = edges;
    slots_ = std::move(slots);
    channels_ = std::move(channels);
    aborted_ = aborted;
  }
  /// The slot of an edge for a micro-batch, as large as what goes through it now.
  TensorView slot_view(int edge, int micro) const;
  /// The stages of a device take turns with the working memory of the first.
  void share_working_memory(const Stage& first) { working_base_ = first.working_base_; }
  std::byte* memory() const { return memory_->data(); }

  void attach_thread() { stage_plan_.backend->attach_thread(); }
  /// Before the tasks of a mini-batch.
  void begin(const MiniBatch& batch);
  /// Runs one task. Waits for and hands on what crosses the cuts.
  void train(const Task& task, const MiniBatch& batch);
  /// The forward of one micro-batch with the running averages.
  void evaluate(int micro, const MiniBatch& batch);
  /// Runs a part of what follows the last task, and notes its time; the next four belong into such parts.
  template <class Work>
  void part(TaskObserver::Part part, Work&& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    if (!host_ && task_observer_ != nullptr) settle();  // its time is its own then
    part_done(part, start);
  }
  // After train, in this order; between them the engine adds up and hands on what is tied.
  /// Gradients in PyTorch's layout.
  void finish_gradients();
  /// The sum of squares of each parameter's gradient, in the order of tensors(); 0 for frozen ones. Known after finish().
  void sum_gradients(std::span<double> sums_of_squares);
  /// After the last task, or sum_gradients(): all work is done, and the caller's arrays are written.
  void finish(const MiniBatch& batch, bool training, std::span<double> sums_of_squares);
  /// Nothing is left in the device's queue; other devices may read the stage's memory.
  void settle();
  /// One rule a parameter (weight decay differs).
  void update(std::span<const device::Update> rules);
  /// Running averages and packed copies.
  void finish_update();

  /// The owner's gradient += that of a user; the user's thread is idle.
  void add_tied_gradient(const graph::Tie& tie, const Stage& user);
  /// The user's copy = the owner's parameter, nothing if both are the same memory; the owner's thread is idle.
  void copy_tied_parameter(const graph::Tie& tie, const Stage& owner);
  // The same where the other stage is in another process, which does the other half.
  void give_tied_gradient(const graph::Tie& tie, Link& to_owner);
  void take_tied_gradient(const graph::Tie& tie, Link& from_user);
  void give_tied_parameter(const graph::Tie& tie, Link& to_user);
  void take_tied_parameter(const graph::Tie& tie, Link& from_owner);
  /// Every parameter changes places with its last slot, the average of its values (device::UpdateCommon::averaging).
  void swap_averages();
  void pack();
  /// Between tensors() and the device's memory, if it has its own: before others read, after they wrote.
  void fetch(bool gradients);
  void push();

  std::vector<StateTensor>& tensors() { return host_ ? tensors_ : mirrors_; }  // parameters first, then running averages
  size_t parameter_count() const { return parameter_count_; }
  double busy_seconds() const { return busy_seconds_; }  // since begin(): all but waiting
  void set_observer(InstructionObserver* observer) { observer_ = observer; }
  void set_task_observer(TaskObserver* observer) { task_observer_ = observer; }
  size_t arena_bytes() const { return memory_->bytes(); }

 private:
  struct NodeMemory {
    std::vector<TensorView> parameters, gradients, buffers;
  };
  /// What the tasks of a bucket's mini-batches are run by.
  struct Bucket {
    const Plan& plan;
    const StagePlan& stage;
    std::vector<graph::NodeState> states;  // by node; all have the same memory, but for packed copies of another layout
  };

  void lay_out_fixed_memory();
  void make_mirrors();
  template <class F>
  void each_mirrored(bool gradients, F&& f);
  /// What a task queues besides its instructions, on devices that queue; its error names the stage.
  template <class Work>
  void queue_beside(Work&& work) const {
    if (host_) return;
    try {
      work();
    } catch (base::Error& error) {
      error.add_context(fmt::format("stage {}", index_));
      throw;
    }
  }
  void wait_readable(int edge, int micro) const;
  void wait_writable(int edge, int micro) const;
  void publish(int edge, int micro) const;
  void release(int edge, int micro) const;
  void observe(const Instruction& instruction, const Task& task, std::span<const TensorView> outputs, double seconds);
  device::Backend& backend() const { return *stage_plan_.backend; }
  void part_done(TaskObserver::Part part, TaskObserver::Time start);
  void reserve_views(const StageProgram& program);
  size_t place_of(int node) const { return static_cast<size_t>(node - stage_plan_.first_node); }
  const NodeMemory& memory_of(int node) const { return nodes_[place_of(node)]; }
  const TensorView& parameter(int node, int index) const { return memory_of(node).parameters[static_cast<size_t>(index)]; }
  const TensorView& gradient(int node, int index) const { return memory_of(node).gradients[static_cast<size_t>(index)]; }
  void run_task(const Task& task, const std::vector<Instruction>& list, const MiniBatch& batch, bool training);
  void execute(const Instruction& instruction, const graph::Pass& pass, const MiniBatch& batch, const Task& task);
  /// Writes the predictions of a micro-batch that the caller wants.
  void hand_out(const TensorView& predictions, const graph::Pass& pass, const MiniBatch& batch) const;
  /// Rows that only fill up a mini-batch send no gradient.
  void clear_padding(const graph::Pass& pass, const TensorView& dx) const;
  std::byte* address(const Place& place, const graph::Pass& pass, const MiniBatch& batch, size_t sample_bytes) const;
  std::byte* predictions_of(const MiniBatch& batch) const;
  TensorView view(const Operand& operand, const graph::Pass& pass, const MiniBatch& batch) const;
  void forward_task(int micro, const std::vector<Instruction>& list, const MiniBatch& batch, bool training);
  void backward_task(const Task& task, const TaskProgram& program, const MiniBatch& batch);
  void weight_task(const Task& task, const TaskProgram& program, const MiniBatch& batch);
  Edge& edge(int index) const { return (*edges_)[static_cast<size_t>(index)]; }
  Channel* channel(int edge) const { return channels_[static_cast<size_t>(edge)]; }
  /// Runs `work` of a node between mini-batches, timed for the observer if there is one.
  template <class Work>
  void keep_up(int node, bool pack, Work work);
  graph::Operation& operation(int node) const { return *now_->stage.operations[place_of(node)]; }
  const graph::NodeState& state(int node) const { return now_->states[place_of(node)]; }

  const Plan& plan_;
  const StagePlan& stage_plan_;
  const int index_;
  const bool host_;  // the device's memory is the host's, and its work is done when a call returns
  std::unique_ptr<device::Memory> memory_;
  std::byte* tasks_base_ = nullptr;    // where kept slots start
  std::byte* tied_copy_ = nullptr;     // for the gradient of a tied parameter that is on another device
  std::byte* working_base_ = nullptr;  // of the device's tasks; in the arena of its first stage
  std::vector<NodeMemory> nodes_;
  std::vector<Bucket> buckets_;       // the widest first
  const Bucket* now_ = nullptr;       // of this mini-batch
  std::vector<StateTensor> tensors_;  // in the device's memory
  size_t parameter_count_ = 0;
  std::vector<Edge>* edges_ = nullptr;
  std::vector<SlotBase> slots_;     // by edge
  std::vector<Channel*> channels_;  // by edge; null within this process
  const std::atomic<bool>* aborted_ = nullptr;
  std::vector<TensorView> inputs_, dx_;           // reused by every call
  std::vector<device::ParameterUpdate> updates_;  // likewise
  std::vector<device::SumOfSquares> squares_;     // likewise
  double busy_seconds_ = 0;
  // Of a device that is not the host:
  std::unique_ptr<device::Memory> mirror_memory_;
  std::vector<StateTensor> mirrors_;          // of tensors_
  std::unique_ptr<device::Memory> observed_;  // copies for the observer
  std::unique_ptr<Staging> staging_;
  std::unique_ptr<QueueClock> clock_;
  std::vector<Task> timed_;  // the tasks of the clock's pieces
  InstructionObserver* observer_ = nullptr;
  TaskObserver* task_observer_ = nullptr;
};

}  // namespace gpipe::pipeline
