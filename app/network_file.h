// A network in a file of its own, with parameters. Any thread.
//
//   # networks/mlp.yaml                          # in the configuration
//   parameters: {width: 64}                      network: {file: networks/mlp.yaml, width: 128}
//   network:
//     - linear: {out_features: $width}
//     - linear: {out_features: $width * 2}
#pragma once

#include "core/base/problems.h"
#include "core/base/tree.h"

#include <filesystem>

namespace gpipe::app {

/// The list of layers that `network` stands for: itself when it is a list, else the file's with `$name` and `$name * N`
/// replaced. The file is looked for from `folder`. Unreadable text throws ConfigError; other faults go to `problems`, and
/// the result is null.
base::Tree resolve_network(const base::Tree& network, const std::filesystem::path& folder, base::Problems& problems);

}  // namespace gpipe::app
