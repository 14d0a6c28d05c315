// Checkpoints: all that a run needs to go on exactly, in a folder that is there as a whole or not at all.
//
//   checkpoints/step-00000123/
//     model.safetensors        weights and buffers under whole-model names, whatever the partitions
//     average.safetensors      the same with the averages of the weights, if the run keeps them (train.ema_decay)
//     optimizer.safetensors    slots, as `<parameter>.<slot>`           (either in shards with an index when large)
//     state.json               where the run stood, as the trainer wrote it
//     manifest.json            written last: run, step, sizes, checksums
//
// Commit: write everything into a temporary sibling, fsync each file and the folder, rename, fsync the parent; only then
// older checkpoints go. Loading verifies the very bytes it hands out. One thread.
#pragma once

#include "core/base/files.h"
#include "core/train/safetensors.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace gpipe::train {

/// What is saved: views, so nothing is copied. They must stay as they are until save() returns.
struct CheckpointContents {
  std::string run;  // id of the run
  int64_t step = 0;
  std::vector<NamedTensor> model;
  std::vector<NamedTensor> average;  // empty: the run keeps none
  std::vector<NamedTensor> optimizer;
  nlohmann::json state;
};

struct SavePolicy {
  int64_t keep_last = 2;   // at least 1: the one just saved
  int64_t best_step = -1;  // the checkpoint of this step stays too; -1: none
  uint64_t shard_bytes = uint64_t{5} << 30;
};

struct Saved {
  std::string folder;
  std::vector<std::string> warnings;  // an old checkpoint that could not be removed
};

/// Saves below `root` (made when absent). FileError when it fails: those checkpoints that were there are untouched. (When
/// the very last fsync fails, the new one is visible too, but might not outlive a power cut.)
Saved save_checkpoint(base::FileSystem& files, const std::string& root, const CheckpointContents& contents,
                      const SavePolicy& policy);

std::string checkpoint_name(int64_t step);  // "step-00000123"
/// The steps of the checkpoints in `root`, ascending, by their names alone. Empty when there is no such folder.
std::vector<int64_t> checkpoint_steps(const std::string& root);

/// Removes what an interrupted save left in `root`; says how many there were.
int64_t sweep_temporaries(base::FileSystem& files, const std::string& root);

/// A random id for a new run: 16 hex digits.
std::string new_run_id();

struct Checkpoint {
  std::string folder;
  std::string run;
  int64_t step = 0;
  nlohmann::json state;
  std::vector<Safetensors> model_files, average_files, optimizer_files;  // own the bytes
  std::vector<std::string> warnings;

  std::vector<NamedTensor> model() const;    // views, valid while this lives
  std::vector<NamedTensor> average() const;  // empty: the run kept none
  std::vector<NamedTensor> optimizer() const;
};

/// Reads and verifies one checkpoint, which may be named through a link. CheckpointError: what is missing or damaged.
Checkpoint load_checkpoint(const std::string& folder);

/// state.json alone, which is verified. CheckpointError as load_checkpoint.
nlohmann::json load_state(const std::string& folder);
/// That of the newest checkpoint of `root` whose state.json verifies; an empty object when there is none.
nlohmann::json newest_state(const std::string& root);

struct Newest {
  Checkpoint checkpoint;
  std::vector<std::string> skipped;  // "FOLDER: why", newest first
};

/// The newest checkpoint of `root` that verifies; links and temporary names are passed over. CheckpointError when there is
/// none, with every reason: a run never starts afresh instead.
Newest find_newest(const std::string& root);

struct ExpectedTensor {
  std::string name;
  std::vector<int64_t> shape;
  StoredType dtype = StoredType::f32;
};

/// CheckpointError naming the first difference, in the order of `expected`. `what` is "model" or "optimizer".
void check_tensors(std::span<const NamedTensor> found, std::span<const ExpectedTensor> expected, const std::string& what,
                   const std::string& folder);
/// CheckpointError naming the first tensor and element that is NaN or infinite.
void check_finite(std::span<const NamedTensor> tensors, const std::string& folder);
/// The first element that is infinite or NaN, in words; "": none.
std::string not_finite(std::span<const NamedTensor> tensors);

}  // namespace gpipe::train
