// RunConfig: a whole configuration as plain data: defaults, then the file, then the command line. Any thread.
#pragma once

#include "app/catalog.h"
#include "app/overrides.h"
#include "core/base/problems.h"
#include "core/pipeline/options.h"
#include "core/train/options.h"

#include <string>
#include <vector>

namespace gpipe::app {

struct RunConfig {
  std::string name;    // of the configuration file, without folder and .yaml
  base::Tree network;  // a list of layers, parameters of a network file filled in
  pipeline::PipelineOptions pipeline;
  train::DataOptions data;
  train::TrainOptions train;
  train::CheckpointOptions checkpoint;
  train::OutputOptions output;
  std::vector<std::string> warnings;

  /// output.folder with {name} filled in.
  std::string output_folder() const;
};

/// The file with the overrides laid over it, nothing read yet. Throws ConfigError.
base::Tree load_tree(const std::string& file, const std::vector<Override>& overrides);

/// Reads all parts, choices and their settings included (not the layers: graph::build_network does), and checks what
/// holds between them. Every fault goes to `problems`; the result is usable only if there were none. `file` names the run
/// and the folder that a network file is looked for from.
RunConfig read_run_config(const base::Tree& tree, const std::string& file, const Catalog& catalog, base::Problems& problems);

/// load_tree and read_run_config. Throws ConfigError with all faults, one a line.
RunConfig load_run_config(const std::string& file, const std::vector<Override>& overrides, const Catalog& catalog);

/// Every setting, defaults included; read_run_config gives the same RunConfig back.
base::Tree write_run_config(const RunConfig& config);

}  // namespace gpipe::app
