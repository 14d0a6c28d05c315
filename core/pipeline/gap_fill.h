// For schedules that look at costs: forwards and backwards in a given order, weight gradients put where a device would wait.
#pragma once

#include "core/pipeline/schedule.h"

namespace gpipe::pipeline {

struct FilledSchedule {
  Schedule schedule;
  double span = 0;      // of a device from its first start to its last end, the longest
  double makespan = 0;  // of all
};

/// `order`: a Schedule whose rows hold forwards and backward_inputs only, all of them, free of deadlock. Weight gradients come
/// in the order of their backward_inputs: in gaps, before a forward that would exceed the request's memory limit, and last;
/// what to do in gaps that are too short for one, and how many to put off at most, is tried, and the best kept. Weight
/// gradients wait for nobody, so the rows are as free of deadlock as the order is.
/// A recompute is part of backward_input, but may run before the gradient arrives. `request` is complete.
FilledSchedule fill_gaps(const ScheduleRequest& request, const Schedule& order);

/// The better of the two: shorter span, then shorter makespan, then the first.
void keep_better(FilledSchedule& best, FilledSchedule other);

/// The request with its defaults filled in: costs by stage, memory limit K.
ScheduleRequest complete(ScheduleRequest request, int chunks);

}  // namespace gpipe::pipeline
