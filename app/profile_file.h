// profile.json: what every node takes, with all that must be the same where it is used again. Main thread.
#pragma once

#include "core/device/algorithms.h"
#include "core/graph/network.h"
#include "core/pipeline/node_profile.h"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace gpipe::app {

/// A node as far as its times depend on it.
struct ProfiledNode {
  std::string name, type;
  std::string output;                   // sample shape, "[8, 8, 32]"
  std::vector<std::string> parameters;  // "weight [32, 16, 3, 3]"
};

struct ProfileFile {
  std::string device, library;  // "AMD EPYC ...", "oneDNN 2.6.3"
  std::string program;          // version that measured
  std::string date;             // UTC, "2026-01-31T12:00:00Z"
  int64_t threads = 1;
  int64_t micro_batch = 1;  // samples
  std::vector<ProfiledNode> nodes;
  std::vector<pipeline::NodeProfile> profile;  // by node
  device::Algorithms::Choices algorithms;      // that it was measured with
};

std::vector<ProfiledNode> profiled_nodes(const graph::Network& network);

nlohmann::json to_json(const ProfileFile& file);
/// ConfigError that names `path` and what is wrong: not JSON, a key that is missing, unknown or of another type, a time that
/// is negative.
ProfileFile read_profile_file(const std::string& path);

/// Whether `saved` says something about `here` (whose `profile` is not looked at): ConfigError with the first difference of
/// network, micro-batch, threads or device. Another library or program is none.
void check_same(const ProfileFile& saved, const ProfileFile& here, const std::string& path);

}  // namespace gpipe::app
