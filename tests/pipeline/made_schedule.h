// Schedules as the tests of schedules want them: any of the list, with what its kind needs.
#pragma once

#include "core/pipeline/schedule.h"

namespace gpipe::test {

inline pipeline::ScheduleRequest request_for(const pipeline::ScheduleType& type, int devices, int micro_batches, int chunks = 3) {
  pipeline::ScheduleRequest request;
  request.devices = devices;
  request.micro_batches = micro_batches;
  request.chunks = type.chunks == 0 ? chunks : type.chunks;
  return request;
}

/// Schedules with any number of stages a device take multiples of K only.
inline bool can_have(const pipeline::ScheduleType& type, int devices, int micro_batches) {
  return type.chunks > 0 || micro_batches % devices == 0;
}

inline pipeline::Schedule made(const pipeline::ScheduleType& type, const pipeline::ScheduleRequest& request, bool recompute) {
  pipeline::check_request(type, request);
  pipeline::Schedule schedule = type.make(request);
  return recompute ? pipeline::with_recompute(std::move(schedule), [](int, int) { return true; }) : schedule;
}

inline pipeline::Schedule made(const char* name, int devices, int micro_batches, bool recompute = false) {
  const auto& type = pipeline::find_schedule(name);
  return made(type, request_for(type, devices, micro_batches), recompute);
}

}  // namespace gpipe::test
