// Choosing the pipeline by search: `plan --search` and `pipeline: auto`. Main thread.
#pragma once

#include "app/compose.h"
#include "core/pipeline/search.h"

#include <nlohmann/json_fwd.hpp>

#include <map>
#include <string>
#include <vector>

namespace gpipe::app {

struct SearchOutcome {
  std::vector<pipeline::Candidate> candidates;                     // as pipeline::search gives them
  int devices = 1;                                                 // K went up to this
  std::map<int64_t, std::vector<pipeline::NodeProfile>> profiles;  // by M, when measured
};

/// `measured`: the nodes are timed anew for every number of micro-batches; else their costs are estimated. The devices are
/// pipeline.partitions when that is above 1, else as many as the cores of this machine serve.
SearchOutcome search_pipeline(const Composition& composition, bool measured);

/// The best ten: time, bubble, memory; then the YAML of the best one. When nothing fits: by how much, and what would.
std::string search_text(const Composition& composition, const SearchOutcome& outcome);
nlohmann::json search_json(const Composition& composition, const SearchOutcome& outcome);

/// Puts the best one in place of the settings that were to be chosen, and plans with it. MemoryError when nothing fits.
void take_best(Composition& composition, const SearchOutcome& outcome);

}  // namespace gpipe::app
