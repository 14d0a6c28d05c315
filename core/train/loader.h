// Loader: mini-batches, prepared ahead on a thread of its own.
//
// What a batch holds is a pure function of (data set, options, epoch, index): not of the prefetch depth, nor of what was
// read before, so a run resumes at (epoch, index) as if it had never stopped. Memory is allocated by the constructor and
// start(); next() allocates nothing. One consumer thread calls start, next and stop; the loader's thread reads the data
// set. An error of that thread comes out of next(), after the batches before it.
#pragma once

#include "core/tensor/tensor.h"
#include "core/train/augment.h"
#include "core/train/dataset.h"
#include "core/train/order.h"

#include <cstdint>
#include <memory>

namespace gpipe::train {

struct LoaderOptions {
  int64_t batch_size = 1;
  bool shuffle = false;
  bool drop_last = false;  // leave out the last, smaller batch of an epoch, or of each bucket
  int64_t prefetch = 2;    // batches prepared beyond the one in use
  uint64_t seed = 1;
  Augmentation augmentation;
  Normalization normalization;
  bool buckets = true;  // each batch of one of the data's buckets; false: all samples as wide as the widest, in the epoch's order
};

struct Batch {
  tensor::TensorView input;   // [batch_size, ...], of SampleSpec::input_type; of the bucket's shape
  tensor::TensorView target;  // [batch_size, ...], of SampleSpec::target_type
  int64_t samples = 0;        // valid rows; the rest of a smaller last batch repeats its last sample
  int bucket = 0;
  int64_t targets = 0;  // in the valid rows, what a loss is averaged over: classes that are not ignored, else samples
  int64_t epoch = 0;
  int64_t index = 0;  // in the epoch
  bool last_of_epoch = false;
  double seconds_waited = 0;  // by next()
};

/// The order that a Loader takes the samples in, not begun.
EpochOrder order_of(const Dataset& data, const LoaderOptions& options);

class Loader {
 public:
  /// ConfigError when drop_last leaves nothing: a batch larger than the data set.
  Loader(std::shared_ptr<const Dataset> data, const LoaderOptions& options);
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;
  ~Loader();

  /// Begins (again) at batch `index` of `epoch`; an index at the end of an epoch means the start of the next one.
  void start(int64_t epoch, int64_t index);
  /// The next batch, endlessly, epoch after epoch. It is valid until the next call of next, start or stop.
  const Batch& next();
  /// Joins the thread; next() wants a start() then.
  void stop();

  int64_t batches_per_epoch() const;
  int64_t samples_per_epoch() const;  // those that batches hold: without what drop_last leaves out
  const Dataset& data() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace gpipe::train
