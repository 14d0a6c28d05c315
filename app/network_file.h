// Network definitions in files of their own: `file:` takes a definition over, `include:` its blocks and parameters. Any thread.
//
//   # networks/mlp.yaml                              # in the configuration
//   params: {width: 64, layers: 4}                   network: {file: networks/mlp.yaml, params: {width: 128}}
//   layers:
//   - repeat:
//       times: ${layers}
//       body: [{linear: {out_features: "${width}"}}, relu]
#pragma once

#include "core/base/fields.h"
#include "core/base/problems.h"
#include "core/base/tree.h"

#include <filesystem>
#include <string>
#include <vector>

namespace gpipe::app {

/// What a definition says of other files; the rest is graph::definition_fields.
struct NetworkFiles {
  std::string file;
  base::Tree include;
};
base::FieldSet<NetworkFiles> network_file_fields();

/// The definition that `network` stands for, on its own: files and includes are merged in, and parameters that were given
/// stand in the place of defaults. A list stays a list. Paths start from `folder`, those in a file from that file's. Unreadable
/// text throws ConfigError; other faults go to `problems`, and the result is null.
base::Tree resolve_network(const base::Tree& network, const std::filesystem::path& folder, base::Problems& problems);

}  // namespace gpipe::app
