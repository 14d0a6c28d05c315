// What `simulate` is asked: schedules, sizes and costs, as flags. Any thread.
#pragma once

#include "core/base/fields.h"

#include <cstdint>
#include <string>
#include <vector>

namespace gpipe::app {

/// Costs are ms for one micro-batch on a whole device; with V stages a device each has a Vth.
struct SimulateOptions {
  std::vector<std::string> schedules;  // as given: a name, or several with commas
  int64_t stages = 0;                  // K, one a device
  int64_t micro_batches = 0;           // M
  double forward = 1, backward_input = 1, backward_weight = 1;
  double recompute = 0;
  double transfer = 0;
  int64_t chunks = 2;              // V, of schedules that leave it open
  double memory_limit = 0;         // activations a device may hold; 0: the schedule's own
  double weight_memory_share = 1;  // of an activation, what stays until its weight gradient is done
  std::string svg;                 // a file; empty: none
};

/// The keys are the flags.
base::FieldSet<SimulateOptions> simulate_fields();

}  // namespace gpipe::app
