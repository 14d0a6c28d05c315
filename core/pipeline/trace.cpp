#include "core/pipeline/trace.h"

#include "core/base/error.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace gpipe::pipeline {

TaskRecorder::TaskRecorder(const Schedule& schedule)
    : device_of_(schedule.device_of), devices_(static_cast<size_t>(schedule.devices)), origin_(std::chrono::steady_clock::now()) {
  for (size_t device = 0; device < devices_.size(); ++device) {
    devices_[device].spans.reserve(schedule.rows[device].size());
    const auto stages = std::count(device_of_.begin(), device_of_.end(), static_cast<int>(device));
    devices_[device].parts.reserve(static_cast<size_t>(4 * stages));  // tied parameters divide each of the two
  }
}

void TaskRecorder::task(const Task& task, Time start, Time end) {
  const int device = device_of_[static_cast<size_t>(task.stage)];
  auto& spans = devices_[static_cast<size_t>(device)].spans;
  GP_CHECK(spans.size() < spans.capacity());  // more would allocate, in the middle of what is measured
  spans.push_back({task, device, seconds(start), seconds(end), 0});
}

void TaskRecorder::part(int stage, Part part, Time start, Time end) {
  const int device = device_of_[static_cast<size_t>(stage)];
  auto& parts = devices_[static_cast<size_t>(device)].parts;
  GP_CHECK(parts.size() < parts.capacity());
  parts.push_back({part, stage, device, seconds(start), seconds(end)});
}

StepTrace TaskRecorder::take(int64_t step) {
  StepTrace trace{step, {}, {}};
  for (Device& device : devices_) {
    trace.spans.insert(trace.spans.end(), device.spans.begin(), device.spans.end());
    trace.parts.insert(trace.parts.end(), device.parts.begin(), device.parts.end());
    device.spans.clear();
    device.parts.clear();
  }
  return trace;
}

double StepTrace::start() const {
  double first = std::numeric_limits<double>::infinity();
  for (const Span& span : spans) first = std::min(first, span.start);
  for (const PartSpan& part : parts) first = std::min(first, part.start);
  return first;
}

double StepTrace::end() const {
  double last = -std::numeric_limits<double>::infinity();
  for (const Span& span : spans) last = std::max(last, span.end);
  for (const PartSpan& part : parts) last = std::max(last, part.end);
  return last;
}

StepTimes times_of(const StepTrace& trace, int devices) {
  StepTimes times;
  times.busy_seconds.assign(static_cast<size_t>(devices), 0.0);
  if (trace.spans.empty() && trace.parts.empty()) return times;
  times.seconds = trace.end() - trace.start();
  double sum = 0;
  const auto add = [&](int device, double seconds) {
    times.busy_seconds[static_cast<size_t>(device)] += seconds;
    sum += seconds;
  };
  for (const Span& span : trace.spans) add(span.device, span.end - span.start);
  for (const PartSpan& part : trace.parts) add(part.device, part.end - part.start);
  if (times.seconds > 0) times.bubble = 1 - sum / (devices * times.seconds);
  return times;
}

Timeline timeline_of(const StepTrace& trace, std::string title, const Schedule& schedule) {
  constexpr double ms = 1e3;
  const double start = trace.start();
  Timeline timeline(std::move(title), schedule.devices, schedule.stages, (trace.end() - start) * ms);
  for (Span span : trace.spans) {
    span.start = (span.start - start) * ms;
    span.end = (span.end - start) * ms;
    timeline.add(span);
  }
  for (const PartSpan& part : trace.parts) timeline.add_update(part.device, (part.start - start) * ms, (part.end - start) * ms);
  return timeline;
}

std::vector<StageLink> links_of(const Plan& plan) {
  std::vector<StageLink> links;
  const auto& device_of = plan.schedule.device_of;
  for (const EdgePlan& edge : plan.edges) {
    const StageLink link{edge.from, edge.to, edge.gradient};
    if (device_of[static_cast<size_t>(edge.from)] == device_of[static_cast<size_t>(edge.to)]) continue;
    if (std::find(links.begin(), links.end(), link) == links.end()) links.push_back(link);
  }
  return links;
}

}  // namespace gpipe::pipeline
