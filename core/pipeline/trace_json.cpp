// Chrome-trace JSON. Times are whole nanoseconds before they become microseconds, so that spans which do not overlap do
// not do so after rounding either.
#include "core/pipeline/trace.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <iterator>
#include <limits>

namespace gpipe::pipeline {
namespace {

class Events {
 public:
  Events(const std::string& name, double origin) : origin_(origin) {
    text_ = R"({"displayTimeUnit":"ms","traceEvents":[)";
    metadata("process_name", 0, nlohmann::json(name).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
  }

  void thread(int id, const std::string& name) {
    metadata("thread_name", id, '"' + name + '"');
    event(R"({{"ph":"M","pid":1,"tid":{},"name":"thread_sort_index","args":{{"sort_index":{}}}}})", id, id);
  }
  /// `arguments` are members of an object.
  void complete(int thread, const std::string& name, const char* category, double start, double end,
                const std::string& arguments) {
    event(R"({{"ph":"X","pid":1,"tid":{},"name":"{}","cat":"{}","ts":{},"dur":{},"args":{{{}}}}})", thread, name, category,
          us(ns(start)), us(ns(end) - ns(start)), arguments);
  }
  /// From the last instant of a span to the first of another: viewers bind an end of a flow to the span around it.
  void flow(const char* name, const Span& from, const Span& to) {
    const int64_t leaves = std::max(ns(from.start), ns(from.end) - 1);
    event(R"({{"ph":"s","pid":1,"tid":{},"name":"{}","cat":"transfer","id":{},"ts":{}}})", from.device + 1, name, ++flows_,
          us(leaves));
    event(R"({{"ph":"f","bp":"e","pid":1,"tid":{},"name":"{}","cat":"transfer","id":{},"ts":{}}})", to.device + 1, name, flows_,
          us(ns(to.start)));
  }
  std::string finish() { return std::move(text_) + "\n]}\n"; }

 private:
  int64_t ns(double seconds) const { return std::llround((seconds - origin_) * 1e9); }
  static std::string us(int64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }

  void metadata(const char* what, int thread, const std::string& json_name) {
    event(R"({{"ph":"M","pid":1,"tid":{},"name":"{}","args":{{"name":{}}}}})", thread, what, json_name);
  }
  template <class... Args>
  void event(fmt::format_string<Args...> format, Args&&... args) {
    text_ += first_ ? "\n" : ",\n";
    first_ = false;
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }

  std::string text_;
  double origin_;
  bool first_ = true;
  int flows_ = 0;
};

/// "stage 1", or "device 1 (stages 1, 5)".
std::string thread_name(const Schedule& schedule, int device) {
  std::string stages;
  for (int stage = 0; stage < schedule.stages; ++stage)
    if (schedule.device_of[static_cast<size_t>(stage)] == device)
      stages += fmt::format("{}{}", stages.empty() ? "" : ", ", stage);
  return schedule.stages == schedule.devices ? "stage " + stages : fmt::format("device {} (stages {})", device, stages);
}

void add_step(Events& events, const StepTrace& step, int stages) {
  events.complete(0, fmt::format("step {}", step.step), "step", step.start(), step.end(), fmt::format(R"("step":{})", step.step));
  for (const Span& span : step.spans) {
    const char* name = name_of(span.task.work);
    const std::string of = stages > 1 ? fmt::format(" (stage {})", span.task.stage) : "";
    events.complete(
        span.device + 1, fmt::format("{} {}{}", name, span.task.micro, of), name, span.start, span.end,
        fmt::format(R"("step":{},"task":"{}","stage":{},"micro_batch":{})", step.step, name, span.task.stage, span.task.micro));
  }
  for (const PartSpan& part : step.parts) {
    const char* name = part.part == TaskObserver::Part::update ? "update" : "gradients";
    events.complete(part.device + 1, name, "update", part.start, part.end,
                    fmt::format(R"("step":{},"task":"{}","stage":{})", step.step, name, part.stage));
  }
}

void add_flows(Events& events, const StepTrace& step, const Schedule& schedule, const std::vector<StageLink>& links) {
  const auto at = [&](int stage, int micro) {
    return static_cast<size_t>(stage) * static_cast<size_t>(schedule.micro_batches) + static_cast<size_t>(micro);
  };
  const size_t all = at(schedule.stages, 0);
  std::vector<const Span*> forwards(all), backwards(all);  // by stage and micro-batch
  for (const Span& span : step.spans) {
    const size_t place = at(span.task.stage, span.task.micro);
    if (span.task.work == Work::forward) forwards[place] = &span;
    if (span.task.work == Work::backward || span.task.work == Work::backward_input) backwards[place] = &span;
  }
  for (const StageLink& link : links)
    for (int micro = 0; micro < schedule.micro_batches; ++micro) {
      const auto& spans = link.gradient ? backwards : forwards;
      const Span* from = spans[at(link.from, micro)];
      const Span* to = spans[at(link.to, micro)];
      if (from != nullptr && to != nullptr) events.flow(link.gradient ? "gradient" : "output", *from, *to);
    }
}

}  // namespace

std::string chrome_trace(const std::vector<StepTrace>& steps, const std::string& name, const Schedule& schedule,
                         const std::vector<StageLink>& links) {
  double origin = std::numeric_limits<double>::infinity();
  for (const StepTrace& step : steps) origin = std::min(origin, step.start());
  Events events(name, origin);
  events.thread(0, "steps");
  for (int device = 0; device < schedule.devices; ++device) events.thread(device + 1, thread_name(schedule, device));
  for (const StepTrace& step : steps) {
    add_step(events, step, schedule.stages / schedule.devices);
    add_flows(events, step, schedule, links);
  }
  return events.finish();
}

}  // namespace gpipe::pipeline
