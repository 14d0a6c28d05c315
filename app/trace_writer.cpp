#include "app/trace_writer.h"

#include <fmt/format.h>

#include <algorithm>

namespace gpipe::app {

TracedSteps traced_steps(int64_t done, int64_t total, int64_t count) {
  constexpr int64_t warm_up = 2;
  const int64_t first = std::max(done + 1, std::min(done + 1 + warm_up, total - count + 1));
  return {first, std::min(total, first + count - 1)};
}

TraceWriter::TraceWriter(const RunFolder& folder, pipeline::Engine& engine, std::string name, TracedSteps steps, int64_t done)
    : folder_(folder), engine_(engine), name_(std::move(name)), steps_(steps), recorder_(engine.plan().schedule) {
  if (steps_.first == done + 1) engine_.set_task_observer(&recorder_);
}

void TraceWriter::step_done(const train::StepReport& report) {
  if (report.step + 1 == steps_.first) engine_.set_task_observer(&recorder_);
  if (report.step < steps_.first || report.step > steps_.last) return;
  traces_.push_back(recorder_.take(report.step));
  if (report.step < steps_.last) return;
  engine_.set_task_observer(nullptr);
  write();
}

void TraceWriter::finish() {
  if (!written_ && !traces_.empty()) write();
}

void TraceWriter::write() {
  const pipeline::Plan& plan = engine_.plan();
  const pipeline::Schedule& schedule = plan.schedule;
  folder_.write("trace.json", pipeline::chrome_trace(traces_, name_, schedule, pipeline::links_of(plan)));
  const pipeline::StepTrace& last = traces_.back();
  const pipeline::StepTimes times = pipeline::times_of(last, schedule.devices);
  const std::string title =
      fmt::format("{}: K = {}, M = {}, step {} as measured, {:.4g} ms, bubble {:.1f} %", plan.options.schedule, schedule.devices,
                  schedule.micro_batches, last.step, 1e3 * times.seconds, 100 * times.bubble);
  folder_.write("timeline.svg", pipeline::svg_of({pipeline::timeline_of(last, title, schedule)}));
  written_ = true;
}

std::string TraceWriter::summary() const {
  if (!written_) return "traced: nothing, for no step was run\n";
  const int64_t first = traces_.front().step;
  const int64_t last = traces_.back().step;
  const std::string steps = first == last ? fmt::format("step {}", first) : fmt::format("steps {} to {}", first, last);
  return fmt::format("traced: {} in {}/trace.json (open it in ui.perfetto.dev); step {} in {}/timeline.svg\n", steps,
                     folder_.path(), last, folder_.path());
}

}  // namespace gpipe::app
