// A table of layers with their costs, as profiles are published: read from JSON, made a partition problem. Main thread.
#pragma once

#include "core/pipeline/partition.h"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace gpipe::app {

struct LayerCost {
  std::string name;
  double forward_ms = 0, backward_ms = 0;
  int64_t activation_bytes = 0;  // of its output: what a cut after it sends
  int64_t parameter_bytes = 0;
};

/// A list of objects with forward_ms and backward_ms, and perhaps name, activation_bytes and parameter_bytes; or an object
/// with such a list as `layers`. Other keys mean nothing here. ConfigError names `source`, the layer and the key.
std::vector<LayerCost> layer_costs(const nlohmann::json& json, const std::string& source);
/// The same from a file of at most 64 MiB.
std::vector<LayerCost> read_layer_costs(const std::string& path);

/// Cost of a layer: forward and backward, in ms.
pipeline::PartitionProblem problem_of(const std::vector<LayerCost>& layers, int stages);

}  // namespace gpipe::app
