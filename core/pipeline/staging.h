// Staging: the caller's arrays of a mini-batch as a stage sees them whose device has memory of its own.
//
// Input and targets are uploaded micro-batch by micro-batch beside the stage's work, and results, predictions and sums of
// squares come back at its end. A stage on a host device has none: it works on the caller's arrays.
#pragma once

#include "core/pipeline/mini_batch.h"
#include "core/pipeline/plan.h"

#include <memory>
#include <span>
#include <vector>

namespace gpipe::pipeline {

/// Which of the caller's arrays the nodes of a stage touch.
struct StagedArrays {
  bool input = false, target = false, prediction = false;
  std::vector<int> results;            // blocks of the losses, in training
  std::vector<int> evaluated_results;  // and in an evaluation
  size_t parameters = 0;               // at most, whose sums of squares go back
};

/// Device memory that the Staging of a stage wants.
size_t staged_bytes(const Plan& plan, const StagePlan& stage);

/// For the gradient of a tied parameter that a stage owns and another uses on a device that its own does not reach, or in another
/// process.
size_t tied_copy_bytes(const Plan& plan, const StagePlan& owner);

class Staging {
 public:
  /// `memory`: staged_bytes on the stage's device.
  Staging(const Plan& plan, const StagePlan& stage, std::byte* memory);

  /// Queues the uploads of the first micro-batches; the device's work on the last mini-batch is done.
  void begin(const MiniBatch& batch);
  /// The queue waits for what `micro` reads. Micro-batches come in ascending order; the upload of a later one is queued.
  void wait(int micro, const MiniBatch& batch);
  /// Queues what goes back to the caller; after Backend::synchronize, hand_over copies it into the caller's arrays.
  void download(const MiniBatch& batch, bool training);
  void hand_over(const MiniBatch& batch, bool training, std::span<double> sums);

  std::byte* input() const { return input_.device; }
  std::byte* target() const { return target_.device; }
  std::byte* results() const { return results_.device; }
  std::byte* predictions() const { return predictions_.device; }
  double* sums() const { return reinterpret_cast<double*>(sums_.device); }

 private:
  /// An array here and on the host, `sample_bytes` a sample.
  struct Array {
    std::byte* device = nullptr;
    std::byte* host = nullptr;
    size_t sample_bytes = 0;
  };
  void upload(size_t micro, const MiniBatch& batch);
  size_t block_bytes() const { return results_.sample_bytes * static_cast<size_t>(plan_.micro_batches.mini_batch); }
  /// Bytes of the predictions that the caller wants of this mini-batch; 0: none.
  size_t prediction_bytes(const MiniBatch& batch, bool training) const;

  const Plan& plan_;
  device::Backend& backend_;
  StagedArrays arrays_;
  std::unique_ptr<device::Memory> pinned_;
  Array input_, target_, results_, predictions_, sums_;
  std::vector<std::unique_ptr<device::Event>> uploaded_;  // by micro-batch
};

}  // namespace gpipe::pipeline
