// The `data:`, `train:`, `checkpoint:` and `output:` parts of a configuration, as plain data. Parts that are a choice from
// a list ("sgd: {momentum: 0.9}") stay trees here; whoever owns the list reads them (core/base/choice.h).
#pragma once

#include "core/base/tree.h"
#include "core/device/precision.h"

#include <cstdint>
#include <string>
#include <vector>

namespace gpipe::train {

struct DataOptions {
  base::Tree train;             // choice from data/list.def
  base::Tree validation;        // the same, or null
  double validation_split = 0;  // share of the training set held out, [0, 1); drawn by seed
  base::Tree normalize;         // null: as stored; `auto`; {mean: [...], std: [...]} per channel, one value for all allowed
  int64_t random_crop = 0;      // zero padding in pixels before a random crop of the original size
  bool horizontal_flip = false;
  int64_t cutout = 0;  // side of a square of zeros, pixels
  bool shuffle = true;
  bool drop_last = true;  // leave out the last, smaller mini-batch of an epoch
  int64_t prefetch = 2;   // mini-batches prepared ahead
};

struct TrainOptions {
  int64_t batch_size = 32;  // samples per update (mini-batch N)
  int64_t epochs = 0;       // exactly one of epochs, steps is given
  int64_t steps = 0;
  base::Tree loss;       // choice: cross_entropy (default) | mse
  base::Tree optimizer;  // choice from core/train/optimizers.def
  double learning_rate = 0.01;
  base::Tree schedule;                  // choice from core/train/rates.def; null: constant
  int64_t warmup_steps = 0;             // linear warm-up from learning_rate / warmup_steps
  double clip_norm = 0;                 // global norm over all stages; 0: off
  double ema_decay = 0;                 // of the average of the weights that is evaluated and saved too; 0: none
  base::Tree init_from;                 // core/train/transfer.h; null: from the seed
  base::Tree parts;                     // core/train/parts.h; null: all alike
  bool decay_norms_and_biases = false;  // weight decay on biases and norms too
  int64_t seed = 1;
  int64_t validate_every = 0;  // steps; 0: at the end of each epoch
  device::Precision precision = device::Precision::f32;
  bool deterministic = true;           // no algorithms of GPUs that give other bits every time
  double loss_scale = 0;               // of the first step, moves from there; 0: none
  int64_t loss_scale_growth = 2000;    // steps without overflow after which it doubles
  std::string on_divergence = "stop";  // stop | skip (leave out the update)
};

struct CheckpointOptions {
  int64_t every_steps = 0;   // 0: not by steps
  int64_t every_epochs = 1;  // 0: not by epochs
  int64_t keep_last = 2;
  std::string best = "validation_loss";  // metric whose best checkpoint is kept too; empty: none
  bool final_save = true;
};

struct OutputOptions {
  std::string folder = "runs/{name}";  // {name}: the configuration file's name without .yaml
  int64_t log_every = 1;               // steps between lines of metrics.jsonl
};

}  // namespace gpipe::train
