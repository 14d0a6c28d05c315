// Engine: the stages of a plan at work, one thread for each device of the pipeline.
//
// Owned by the trainer and driven by one thread (the caller's): each call wakes the stage threads, and returns when all are
// idle again. Where several processes share a run, each has an engine with its own devices, and all make the same calls. The
// first failing stage aborts the edges, all others stop at their next instruction, and the call throws that first error with
// stage, node, micro-batch and step in it; the engine is of no more use then.
#pragma once

#include "core/pipeline/channel.h"
#include "core/pipeline/edge.h"
#include "core/pipeline/plan.h"
#include "core/pipeline/remote_tensors.h"
#include "core/pipeline/stage.h"

#include <atomic>
#include <condition_variable>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

namespace gpipe::pipeline {

struct StepResult {
  double loss = 0;            // mean over the targets of the mini-batch
  double auxiliary_loss = 0;  // the auxiliary losses likewise, each times its weight
  int64_t hits = 0;           // targets whose largest logit is the target's
  double gradient_norm = 0;   // global, before clipping
  bool finite = true;         // loss and gradient norm; if not, nothing was updated
  double seconds = 0;         // wall time of the call
};

class Engine {
 public:
  /// Allocates all arenas and starts the threads. The plan must outlive the engine.
  explicit Engine(const Plan& plan);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine();

  /// Forward, backward and update of one mini-batch. `rules`: one a parameter, in the order of tensors(), with
  /// gradient_scale still 1; `clip_norm` 0 = no clipping. Nothing is updated when loss or gradient is not finite.
  StepResult train(const MiniBatch& batch, std::span<const device::Update> rules, double clip_norm);
  /// Forward only, with the running averages; results (and predictions) are written to the batch's arrays.
  void evaluate(const MiniBatch& batch);
  /// Parameters change places with the averages in their last slot; packed.
  void swap_averages();
  /// Must follow every write to tensors() from outside.
  void pack();
  /// Must come before a read of tensors() from outside, if a step, evaluation or swap came since the last one: brings what
  /// devices with memory of their own hold; gradients only if wanted. Nothing to do on CPUs.
  void fetch(bool gradients = false);
  /// Whether it is so in any process; all ask at the same time.
  bool any(bool mine) const;

  /// In memory of the host: parameters in the order of the network, then the running averages likewise; the same for every
  /// partition. Those of other processes are there in process 0 alone, after fetch(); elsewhere their views are null.
  const std::vector<StateTensor*>& tensors() const { return tensors_; }
  size_t parameter_count() const { return parameter_count_; }

  /// Of the last train() or evaluate(): seconds that each device worked, waiting not counted.
  std::span<const double> busy_seconds() const { return busy_seconds_; }
  size_t arena_bytes(int stage) const { return plan_.stages[static_cast<size_t>(stage)].memory.total(); }
  const Plan& plan() const { return plan_; }
  void set_observer(InstructionObserver* observer);
  /// Between calls; null: none.
  void set_task_observer(TaskObserver* observer);

 private:
  /// What a stage thread is asked to do; type-erased without allocation.
  struct Job {
    void (*call)(void* object, int device) = nullptr;
    void* object = nullptr;
  };
  template <class F>
  void run_on_all(F&& function);
  void dispatch(Job job);
  void thread_main(int device);
  template <class F>
  void for_stages_of(int device, F&& function);
  void fail(std::exception_ptr error);
  void note_busy(int device);
  /// All devices; the last one runs `decision` before the others go on.
  template <class F>
  void arrive_and_wait(F&& decision);
  void decide();
  device::Peers* peers() const;  // null: this process alone
  void list_tensors();
  void open_channels();
  void open_edges();
  /// Between these stages; null within a process.
  Channel* channel(size_t from, size_t to) const;
  void begin(int device, const MiniBatch& batch, bool training);
  std::span<float> results_of(const MiniBatch& batch, int losses) const;
  void clear_parts(std::span<float> results);
  void put_together(std::span<float> results);
  void share_busy();
  void gather();
  /// The stages of all devices have done all they were asked to before any goes on.
  void meet(int device);
  /// Tied copies and packed ones, after parameters have changed.
  void take_in_parameters();
  void make_gradients(int device);
  void update(int device);
  /// Of those that the device's stages use or own.
  void copy_tied_parameters(int device);
  /// All devices go through ties_ in its order, whatever stages they have: each may wait for the other end of a tie.
  struct PlacedTie {
    graph::Tie tie;
    size_t owner, user;  // stages
  };
  /// What the stage has to do for it: take the user's gradient, or give it.
  void hand_tied_gradient(const PlacedTie& placed, size_t index, Stage& stage);

  const Plan& plan_;
  std::vector<int> devices_;                            // of this process
  std::vector<std::unique_ptr<Stage>> stages_;          // null: another process's
  std::vector<std::unique_ptr<RemoteTensors>> remote_;  // of those
  std::vector<Edge> edges_;
  std::map<Channel::Ends, std::unique_ptr<Channel>> channels_;
  std::vector<StateTensor*> tensors_;
  size_t parameter_count_ = 0;
  std::vector<PlacedTie> ties_;
  std::vector<double> auxiliary_weights_;
  std::vector<size_t> first_parameter_;  // of each stage, in the order of tensors_

  // One mini-batch: written by the stages before the barrier, read by all after it.
  std::vector<double> sums_of_squares_;  // by parameter
  std::vector<device::Update> rules_;
  const MiniBatch* batch_ = nullptr;
  double clip_norm_ = 0;
  StepResult result_;
  float gradient_scale_ = 1;
  std::vector<double> busy_seconds_;

  std::mutex mutex_;
  std::condition_variable wake_, idle_, barrier_;
  Job job_;
  uint64_t job_number_ = 0;
  int running_ = 0;
  bool quit_ = false;
  int arrived_ = 0;
  uint64_t barrier_round_ = 0;
  std::atomic<bool> aborted_{false};
  std::exception_ptr first_error_;
  std::vector<std::thread> threads_;  // last: started when all else is there
};

}  // namespace gpipe::pipeline
