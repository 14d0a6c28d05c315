// Composition: from a configuration to everything a command needs, in the order in which faults are best told: settings,
// data, network, plan. The one place that knows every room. Used by the main thread.
#pragma once

#include "app/run_config.h"
#include "core/pipeline/estimate.h"
#include "core/pipeline/plan.h"
#include "core/train/data.h"
#include "core/train/optimizer.h"
#include "core/train/parts.h"
#include "core/train/rate.h"
#include "core/train/transfer.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gpipe::app {

struct Composition {
  RunConfig config;
  train::DataSets data;
  std::unique_ptr<train::Optimizer> optimizer;
  std::unique_ptr<train::Rate> rate;
  std::unique_ptr<graph::Network> network;
  std::vector<std::unique_ptr<graph::Network>> narrower;  // of the training data's buckets 1, 2, ..., on the same weights
  std::vector<train::Part> parts;
  std::optional<train::InitFrom> init_from;
  std::unique_ptr<pipeline::Plan> plan;        // refers to the networks
  std::vector<pipeline::NodeProfile> profile;  // by node; empty unless measured
  std::string costs_from;                      // where the times come from, in words
  std::string profile_date;                    // when it was measured
  pipeline::DevicePeaks peaks;                 // for estimates without a profile
  std::vector<std::string> warnings;
};

/// Opens the data and plans the run, unless the pipeline is still to be chosen (pipeline.search); allocates no arena. ConfigError
/// with all faults of a part at once, DataError, DeviceError. `calibrate`: costs without a profile are estimated by what this
/// device reaches (else by usual figures).
std::unique_ptr<Composition> compose(RunConfig config, bool calibrate);
/// What every node takes: the profile, or else the estimates.
std::vector<pipeline::NodeProfile> node_profile(const Composition& composition, const pipeline::PipelineOptions& options);
/// The mini-batches of an epoch of training.
train::EpochOrder training_order(const Composition& composition);
/// The same network with other pipeline options, balanced by node_profile.
std::unique_ptr<pipeline::Plan> plan_with(const Composition& composition, const pipeline::PipelineOptions& options);

}  // namespace gpipe::app
