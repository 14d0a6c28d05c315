// What the commands that run a network share: profile, loaders, messages, checkpoints to start from. Main thread.
#pragma once

#include "app/cli.h"
#include "app/compose.h"
#include "core/train/checkpoint.h"
#include "core/train/loader.h"
#include "core/train/run_state.h"

#include <nlohmann/json_fwd.hpp>

#include <optional>

namespace gpipe::app {

/// Configuration, data, network and plan of a command; with --profile balanced by measured costs. Warnings go to stderr.
std::unique_ptr<Composition> open_session(const Command& command, const Catalog& catalog);

/// One mini-batch of training data, held by its loader, and the arrays that go with it.
class FirstBatch {
 public:
  explicit FirstBatch(const Composition& composition);
  pipeline::MiniBatch view();

 private:
  train::Loader loader_;
  const train::Batch& batch_;
  std::vector<float> results_;
  uint64_t seed_;
};

/// Times every node on one stage with the run's micro-batches and threads.
std::vector<pipeline::NodeProfile> profile_nodes(const Composition& composition);
nlohmann::json profile_json(const Composition& composition);

train::RunFacts facts_of(const Composition& composition, std::string run);
/// What --checkpoint names, or else the best checkpoint of the run folder, or else its newest.
train::Checkpoint open_checkpoint(const Command& command, const Composition& composition);

}  // namespace gpipe::app
