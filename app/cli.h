// The command line as plain data. Nothing is run or opened here. Used by main, before any thread starts.
#pragma once

#include "app/catalog.h"
#include "app/generate_options.h"
#include "app/overrides.h"
#include "app/simulate_options.h"
#include "app/tokenize_options.h"

#include <optional>
#include <string>
#include <vector>

namespace gpipe::app {

struct Command {
  std::string verb;                 // "train", "plan", ...; "help" when `text` is all there is to do
  std::string config_file;          // verbs that take one
  std::vector<Override> overrides;  // --set and the shortcut flags, in that order
  bool profile = false;
  bool search = false;         // plan: try all pipelines
  std::string svg;             // plan, describe: a file for the picture; empty: none
  std::string dot;             // describe: a file for the graph; empty: none
  int64_t depth = 0;           // describe: levels of names that are drawn; 0: as many as can be read
  std::string describe_input;  // describe: a sample's shape, "224,224,3"; empty: the definition's, or the data's
  std::string profile_from;    // train, plan: a saved profile; empty: none
  std::string profile_output;  // profile: a file; empty: none
  bool resume = false;
  std::string resume_from;  // the DIR of --resume; empty: the configuration's own run folder
  bool dry_run = false;
  bool quiet = false;
  bool json = false;
  int64_t trace = 0;                   // train: steps to trace; 0: none
  std::string checkpoint;              // eval, predict: --checkpoint DIR; empty: the best of the run folder
  std::string predict_input;           // a data set as in data.train, or "" for the validation data
  std::string predict_output;          // a file; empty: standard output
  GenerateOptions generate;            // predict's own flags
  bool bleu = false;                   // eval: translate as well
  std::string hypotheses, references;  // bleu: files
  SimulateOptions simulate;            // simulate's own flags
  TokenizeOptions tokenize;            // tokenize's own flags
  std::string costs_file;              // plan: --costs FILE, a table of layers instead of a configuration
  std::string text;                    // help: what to print
};

/// The verbs, in the order in which help lists them.
std::vector<std::string> known_verbs();

/// `arguments` without the program's name. Throws ConfigError that names the nearest verb or flag.
Command parse_command_line(std::vector<std::string> arguments, const Catalog& catalog);

}  // namespace gpipe::app
