#include "core/base/error.h"
#include "core/pipeline/row_stream.h"

#include <fmt/format.h>

#include <algorithm>

namespace gpipe::pipeline {

#define GPIPE_COST_SCHEDULE(name, id, splits, chunks, summary) Schedule make_##id(const ScheduleRequest& request);
#define GPIPE_SCHEDULE(name, id, splits, chunks, summary) \
  GPIPE_COST_SCHEDULE(name, id, splits, chunks, summary)  \
  std::unique_ptr<RowStream> stream_##id(const ScheduleRequest& request, int device);
#include "core/pipeline/schedules.def"
#undef GPIPE_SCHEDULE
#undef GPIPE_COST_SCHEDULE

char letter(Work work) { return "FRBBW"[static_cast<size_t>(work)]; }

const char* name_of(Work work) {
  constexpr const char* names[k_works] = {"forward", "recompute", "backward", "backward_input", "backward_weight"};
  return names[static_cast<size_t>(work)];
}

const std::vector<ScheduleType>& schedule_types() {
  static const std::vector<ScheduleType> types{
#define GPIPE_SCHEDULE(name, id, splits, chunks, summary) {name, summary, splits, chunks, make_##id, stream_##id},
#define GPIPE_COST_SCHEDULE(name, id, splits, chunks, summary) {name, summary, splits, chunks, make_##id, nullptr},
#include "core/pipeline/schedules.def"
#undef GPIPE_SCHEDULE
#undef GPIPE_COST_SCHEDULE
  };
  return types;
}

const ScheduleType& find_schedule(const std::string& name) {
  std::string known;
  for (const ScheduleType& type : schedule_types()) {
    if (type.name == name) return type;
    known += known.empty() ? type.name : fmt::format(", {}", type.name);
  }
  throw base::ConfigError("pipeline.schedule: unknown schedule '{}'; known: {}", name, known);
}

void check_request(const ScheduleType& type, const ScheduleRequest& request) {
  if (type.chunks > 0 && request.chunks != 1 && request.chunks != type.chunks)
    throw base::ConfigError("pipeline.chunks: {} stages a device, but schedule {} has {}; leave it out", request.chunks,
                            type.name, type.chunks);
  if (type.chunks == 0) {  // goes round the devices in groups of K micro-batches
    if (request.chunks < 2)
      throw base::ConfigError("pipeline.chunks: schedule {} has several stages a device, found {}; ask for 2 or more", type.name,
                              request.chunks);
    if (request.micro_batches % request.devices != 0)
      throw base::ConfigError("pipeline.micro_batches: schedule {} takes a multiple of the {} devices, found {}; {} would do",
                              type.name, request.devices, request.micro_batches,
                              (request.micro_batches / request.devices + 1) * request.devices);
  }
  if (type.stream == nullptr && request.memory_limit != 0 && !(request.memory_limit >= 1))
    throw base::ConfigError(
        "a limit of {:.3g} activations a device (pipeline.activation_limit, --memory-limit): schedule {} needs 1 to go on at all",
        request.memory_limit, type.name);
}

std::vector<int> devices_of_stages(int devices, int chunks, bool back) {
  std::vector<int> device_of;
  for (int chunk = 0; chunk < chunks; ++chunk)
    for (int i = 0; i < devices; ++i) device_of.push_back(back && chunk % 2 == 1 ? devices - 1 - i : i);
  return device_of;
}

Schedule collect_rows(const ScheduleRequest& request, int chunks, StreamRow stream) {
  Schedule schedule{
      request.devices, request.devices * chunks, request.micro_batches, devices_of_stages(request.devices, chunks, false), {}};
  for (int device = 0; device < request.devices; ++device) {
    auto& row = schedule.rows.emplace_back();
    const auto tasks = stream(request, device);
    for (Task task; tasks->next(task);) row.push_back(task);
  }
  return schedule;
}

Schedule with_recompute(Schedule schedule, const std::function<bool(int stage, int micro)>& wanted) {
  schedule.recomputes.assign(static_cast<size_t>(schedule.stages), {});
  for (int stage = 0; stage < schedule.stages; ++stage)
    for (int micro = 0; micro < schedule.micro_batches; ++micro)
      schedule.recomputes[static_cast<size_t>(stage)].push_back(wanted(stage, micro));
  for (auto& row : schedule.rows) {
    std::vector<Task> out;
    for (const Task& task : row) {
      const bool backward = task.work == Work::backward || task.work == Work::backward_input;
      if (backward && schedule.recomputed(task.stage, task.micro)) out.push_back({Work::recompute, task.micro, task.stage});
      out.push_back(task);
    }
    row = std::move(out);
  }
  return schedule;
}

int most_live(const Schedule& schedule, int stage, Work from, Work to, const std::function<bool(int micro)>& counts) {
  const auto is = [](Work task, Work asked) {
    if (task == asked) return true;
    return task == Work::backward && (asked == Work::backward_input || asked == Work::backward_weight);
  };
  const auto& row = schedule.rows[static_cast<size_t>(schedule.device_of[static_cast<size_t>(stage)])];
  int live = 0;
  int most = 0;
  std::vector<bool> started(static_cast<size_t>(schedule.micro_batches), false);
  for (const Task& task : row) {
    if (task.stage != stage || (counts && !counts(task.micro))) continue;
    const auto micro = static_cast<size_t>(task.micro);
    if (is(task.work, from) && !started[micro]) {
      started[micro] = true;
      most = std::max(most, ++live);
    }
    if (is(task.work, to) && started[micro]) --live;
  }
  return most;
}

std::string picture(const Schedule& schedule) {
  std::string text;
  for (size_t device = 0; device < schedule.rows.size(); ++device) {
    text += fmt::format("device {:<3}", device);
    for (const Task& task : schedule.rows[device]) {
      text += fmt::format(" {}{}", letter(task.work), task.micro);
      if (schedule.stages > schedule.devices) text += fmt::format(".{}", task.stage);
    }
    text += "\n";
  }
  return text;
}

}  // namespace gpipe::pipeline
