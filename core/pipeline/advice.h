// Advice: what a planner's page says in words: what holds a plan back, and which change would help. Pure functions.
#pragma once

#include "core/pipeline/predict.h"
#include "core/pipeline/search.h"

#include <string>
#include <vector>

namespace gpipe::pipeline {

struct AdviceInput {
  const Plan& plan;
  const Prediction& prediction;
  int cores = 0;  // of this machine, for stages on CPUs; 0: unknown
};

/// A sentence each, the weightiest first; none when nothing is to be said. Figures are of the simulated step.
std::vector<std::string> advice(const AdviceInput& input);

/// The bubble of the same plan with other micro-batches, each the smaller for being more. Settings that the schedule
/// refuses give no answer (-1).
double bubble_with(const Plan& plan, const Prediction& prediction, int micro_batches);

/// Why a plan does not fit its limit, by how much, and the first change that would make it fit, in words; "" when it fits.
/// Changes are tried from the one that costs least: recompute, then more micro-batches, then another schedule, then more
/// devices, then a smaller mini-batch. `batch_size` and `optimizer_slots` as the plan's.
std::string misfit_words(const Plan& plan);

}  // namespace gpipe::pipeline
