// Composition: from a configuration to everything a command needs, in the order in which faults are best told: settings,
// data, network, plan. The one place that knows every room. Used by the main thread.
#pragma once

#include "app/run_config.h"
#include "core/pipeline/plan.h"
#include "core/pipeline/profile.h"
#include "core/train/data.h"
#include "core/train/optimizer.h"
#include "core/train/rate.h"

#include <memory>
#include <string>
#include <vector>

namespace gpipe::app {

struct Composition {
  RunConfig config;
  train::DataSets data;
  std::unique_ptr<train::Optimizer> optimizer;
  std::unique_ptr<train::Rate> rate;
  std::unique_ptr<graph::Network> network;
  std::unique_ptr<pipeline::Plan> plan;        // refers to the network
  std::vector<pipeline::NodeProfile> profile;  // by node; empty unless measured
  std::vector<std::string> warnings;
};

/// Opens the data and plans the run; allocates no arena. ConfigError with all faults of a part at once, DataError, DeviceError.
std::unique_ptr<Composition> compose(RunConfig config);
/// The same network with other pipeline options, balanced by the profile when there is one.
std::unique_ptr<pipeline::Plan> plan_with(const Composition& composition, const pipeline::PipelineOptions& options);

}  // namespace gpipe::app
