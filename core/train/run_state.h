// Between a run and its checkpoints: the engine's tensors as named tensors, the trainer's state as JSON, and back.
// Used on the trainer's thread while the engine is idle.
#pragma once

#include "core/pipeline/engine.h"
#include "core/train/checkpoint.h"
#include "core/train/optimizer.h"
#include "core/train/trainer.h"

#include <map>
#include <string>

namespace gpipe::train {

/// What a run is, of which a checkpoint cannot be taken by another. Kept in state.json.
struct RunFacts {
  std::string run;                                     // id
  std::string optimizer;                               // its name in the list; some have slots of the same names
  std::vector<std::string> layers;                     // "name type" of every node, in order
  std::string device = {};                             // and its library, in words
  std::map<std::string, std::string> algorithms = {};  // device::Algorithms::Choices of the run
};

class RunSaver final : public CheckpointSaver {
 public:
  RunSaver(base::FileSystem& files, std::string root, pipeline::Engine& engine, const Optimizer& optimizer, RunFacts facts,
           const CheckpointOptions& options);
  std::string save(const TrainState& state) override;

 private:
  base::FileSystem& files_;
  std::string root_;
  pipeline::Engine& engine_;
  const Optimizer& optimizer_;
  RunFacts facts_;
  const CheckpointOptions& options_;
};

/// Weights (or their averages over the updates) and running averages into the engine, which is packed. CheckpointError naming the
/// first difference.
void restore_model(pipeline::Engine& engine, const Checkpoint& checkpoint, bool averaged);
/// The same with the optimizer's slots, and where the run stood.
TrainState restore_run(pipeline::Engine& engine, const Optimizer& optimizer, const Checkpoint& checkpoint);
/// CheckpointError when the checkpoint is of other layers or of another optimizer: shapes alone do not tell relu from gelu.
void check_kinds(const Checkpoint& checkpoint, const RunFacts& now);
/// The algorithms that the saved run had chosen, from state.json; none in checkpoints of before they were kept.
std::map<std::string, std::string> saved_algorithms(const nlohmann::json& state, const std::string& folder);

}  // namespace gpipe::train
