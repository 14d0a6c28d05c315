// What the commands that run a network share: profile, loaders, messages, checkpoints to start from. Main thread.
#pragma once

#include "app/cli.h"
#include "app/compose.h"
#include "app/profile_file.h"
#include "core/train/checkpoint.h"
#include "core/train/loader.h"
#include "core/train/run_state.h"

#include <optional>

namespace gpipe::app {

/// Configuration, data, network and plan of a command; with --profile or --profile-from balanced by measured costs. Warnings go
/// to stderr. `peers`: of a run in several processes, which all call this; process 0 alone measures and warns.
std::unique_ptr<Composition> open_session(const Command& command, const Catalog& catalog,
                                          const std::shared_ptr<device::Peers>& peers = nullptr);

/// One mini-batch of training data, held by its loader, and the arrays that go with it.
class FirstBatch {
 public:
  /// The first of this bucket; without one, of samples that are all as wide as the widest.
  FirstBatch(const Composition& composition, std::optional<int> bucket);
  pipeline::MiniBatch view();

 private:
  train::Loader loader_;
  const train::Batch& batch_;
  std::vector<float> results_;
  uint64_t seed_;
};

/// The same on one stage that keeps everything: what a pipeline is compared with, and profiles are measured on.
pipeline::PipelineOptions unpiped(pipeline::PipelineOptions options);
/// Times every node on one stage with the micro-batches and threads of `options`.
std::vector<pipeline::NodeProfile> profile_nodes(const Composition& composition, const pipeline::PipelineOptions& options);
/// The composition's profile is `measured` from now on, here and now.
void take_measured(Composition& composition, std::vector<pipeline::NodeProfile> measured);
/// The composition's profile with all that it belongs to.
ProfileFile profile_file(const Composition& composition);
/// Takes over a saved profile: ConfigError where it is of something else.
void take_profile(Composition& composition, ProfileFile saved, const std::string& path);

train::RunFacts facts_of(const Composition& composition, std::string run);
/// What --checkpoint names, or else the best checkpoint of the run folder, or else its newest.
train::Checkpoint open_checkpoint(const Command& command, const Composition& composition);

/// The composition's plan at work, with the weights (or their averages) of that checkpoint.
struct TrainedModel {
  std::unique_ptr<pipeline::Engine> engine;
  std::string folder;  // of the checkpoint
};
TrainedModel load_trained(const Command& command, const Composition& composition);

}  // namespace gpipe::app
