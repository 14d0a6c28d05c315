// Starting from weights that were trained before: `train.init_from`. The file is read and compared with the network before
// anything is created; what it does not have must be named as fresh.
#pragma once

#include "core/base/problems.h"
#include "core/base/tree.h"
#include "core/graph/network.h"
#include "core/pipeline/engine.h"
#include "core/train/checkpoint.h"

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gpipe::train {

struct InitFrom {
  std::string path;                                        // a checkpoint folder, or a safetensors file
  std::vector<std::pair<std::string, std::string>> names;  // beginnings of names there -> here; the first that fits counts
  std::vector<std::string> fresh;                          // patterns of parameters that start from the seed
  bool average = false;                                    // of a checkpoint: the averages of its weights
};

/// A path, or `{path: ..., names: {"module.": ""}, fresh: ["head.*"], average: true}`. Null: nothing.
std::optional<InitFrom> read_init_from(const base::Tree& tree, const std::string& path, base::Problems& problems);

/// Weights to start from, each under the name that the network has for it.
class Transfer {
 public:
  /// Reads the file. CheckpointError: it cannot be read, or a parameter or running average of the network is not in it in the
  /// same shape and not named as fresh. f16, bf16 and f64 become f32.
  Transfer(const InitFrom& from, const graph::Network& network);

  /// Over what the seed has given; to be packed afterwards.
  void write(pipeline::Engine& engine) const;
  /// "72 tensors of runs/a/checkpoints/step-00000100; fresh: head.weight, head.bias; 2 of the file are not used"
  const std::string& summary() const { return summary_; }

 private:
  void open(const InitFrom& from);

  std::optional<Checkpoint> checkpoint_;  // own the bytes
  std::optional<Safetensors> file_;
  std::map<std::string, NamedTensor> tensors_;  // by their names here
  std::string summary_;
};

}  // namespace gpipe::train
