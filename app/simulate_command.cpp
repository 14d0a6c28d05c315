// simulate: what schedules make of given costs, without a network: a table, JSON, pictures.
#include "app/commands.h"
#include "core/base/choice.h"
#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/scalar.h"
#include "core/base/text.h"
#include "core/pipeline/simulate.h"
#include "core/pipeline/timeline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>

namespace gpipe::app {
namespace {

using base::ConfigError;
using pipeline::ScheduleType;
using pipeline::Simulation;

/// Schedules that are not made task by task are held as a whole; so many tasks are 1 GiB with what goes with them.
constexpr int64_t k_most_held_tasks = 20'000'000;
// A schedule that is made on the way takes no memory, but time: some 20 million tasks a second.
constexpr int64_t k_most_tasks = 2'000'000'000;
/// Up to here a second pass for the text timeline is not felt.
constexpr int64_t k_most_drawn_tasks = 1'000'000;

std::vector<const ScheduleType*> schedules_of(const std::vector<std::string>& given) {
  std::vector<std::string> known;
  for (const ScheduleType& type : pipeline::schedule_types()) known.emplace_back(type.name);
  std::vector<const ScheduleType*> all;
  for (const std::string& words : given)
    for (size_t start = 0; start <= words.size();) {
      const size_t end = std::min(words.find(',', start), words.size());
      const std::string name = words.substr(start, end - start);
      start = end + 1;
      const auto found = std::find(known.begin(), known.end(), name);
      if (found == known.end()) {
        const std::string near = base::nearest(name, known);
        throw ConfigError("--schedule: unknown schedule {}{} known: {}", base::shown(name),
                          near.empty() ? ";" : fmt::format(", did you mean \"{}\"?", near), fmt::join(known, ", "));
      }
      const ScheduleType* type = &pipeline::schedule_types()[static_cast<size_t>(found - known.begin())];
      if (std::find(all.begin(), all.end(), type) == all.end()) all.push_back(type);
    }
  return all;
}

/// Of a configuration's words "pipeline.micro_batches: ..." the flag's: "--micro-batches: ...".
std::string by_flags(std::string message) {
  constexpr std::string_view part = "pipeline.";
  if (!message.starts_with(part)) return message;
  const size_t end = std::min(message.find(':'), message.size());
  std::replace(message.begin(), message.begin() + static_cast<std::ptrdiff_t>(end), '_', '-');
  return "--" + message.substr(part.size());
}

/// One schedule with the options' costs: made once where it must be made as a whole, simulated as often as wanted.
class Case {
 public:
  Case(const ScheduleType& type, const SimulateOptions& options) : type_(type) {
    const int chunks = type.chunks > 0 ? type.chunks : static_cast<int>(options.chunks);
    const double share = 1.0 / chunks;
    request_.devices = static_cast<int>(options.stages);
    request_.micro_batches = static_cast<int>(options.micro_batches);
    request_.chunks = chunks;
    request_.costs.assign(static_cast<size_t>(stages()), {options.forward * share, options.backward_input * share,
                                                          options.backward_weight * share, options.recompute * share});
    request_.transfer = options.transfer;
    request_.memory_limit = options.memory_limit;
    request_.weight_memory_share = options.weight_memory_share;
    input_.costs = request_.costs;
    input_.holdings.assign(static_cast<size_t>(stages()), {share, share * options.weight_memory_share});
    input_.link.latency = options.transfer;
    try {
      pipeline::check_request(type, request_);
    } catch (const ConfigError& error) { throw ConfigError("{}", by_flags(error.what())); }
    if (tasks() > k_most_tasks)
      throw ConfigError("--schedule {}: {} tasks would take minutes, at most {} are simulated; ask for fewer --micro-batches",
                        type.name, base::format_count(tasks()), base::format_count(k_most_tasks));
    if (type.stream == nullptr || options.recompute > 0) make(options.recompute > 0);
    simulation_ = run({});
  }

  const char* name() const { return type_.name; }
  const Simulation& simulation() const { return simulation_; }
  int chunks() const { return request_.chunks; }
  int stages() const { return request_.devices * request_.chunks; }
  int64_t tasks() const { return int64_t{3} * stages() * request_.micro_batches; }  // about
  double peak() const {
    double most = 0;
    for (const auto& device : simulation_.devices) most = std::max(most, device.peak_held);
    return most;
  }
  std::string title() const {
    return fmt::format("{}: K = {}, M = {}{}, makespan {:.6g} ms, bubble {:.2f} %", name(), request_.devices,
                       request_.micro_batches, chunks() > 1 ? fmt::format(", V = {}", chunks()) : "", simulation_.makespan,
                       100 * simulation_.bubble_rate);
  }
  pipeline::Timeline timeline() const {
    pipeline::Timeline timeline(title(), request_.devices, stages(), simulation_.makespan);
    run([&](const pipeline::Span& span) { timeline.add(span); });
    return timeline;
  }

 private:
  void make(bool recompute) {
    if (tasks() > k_most_held_tasks)
      throw ConfigError("--schedule {}{}: {} tasks are to be held at once, at most {} can be; ask for fewer --micro-batches{}",
                        name(), recompute ? " with --recompute" : "", base::format_count(tasks()),
                        base::format_count(k_most_held_tasks),
                        type_.stream != nullptr ? ", or add the recompute to --backward-input" : "");
    made_ = type_.make(request_);
    if (recompute) made_ = pipeline::with_recompute(std::move(*made_), [](int, int) { return true; });
  }
  Simulation run(const pipeline::SpanSink& sink) const {
    return made_ ? pipeline::simulate(*made_, input_, sink) : pipeline::simulate_streams(request_, type_, input_, sink);
  }

  const ScheduleType& type_;
  pipeline::ScheduleRequest request_;
  pipeline::SimulationInput input_;
  std::optional<pipeline::Schedule> made_;
  Simulation simulation_;
};

std::vector<double> idle_shares(const Case& one) {
  std::vector<double> all;
  for (size_t device = 0; device < one.simulation().devices.size(); ++device)
    all.push_back(one.simulation().idle_share(static_cast<int>(device)));
  return all;
}

nlohmann::json json_of(const Case& one, const SimulateOptions& options) {
  nlohmann::json json{{"schedule", one.name()},
                      {"stages", options.stages},
                      {"micro_batches", options.micro_batches},
                      {"chunks", one.chunks()},
                      {"makespan_ms", one.simulation().makespan},
                      {"bubble_rate", one.simulation().bubble_rate},
                      {"idle_share", idle_shares(one)}};
  for (const auto& device : one.simulation().devices) json["peak_activations"].push_back(device.peak_held);
  return json;
}

std::string table_of(const std::vector<Case>& cases) {
  const auto right = base::Table::Align::right;
  base::Table table(
      {{"schedule"}, {"makespan", right}, {"bubble", right}, {"idle of a device", right}, {"peak activations", right}});
  for (const Case& one : cases) {
    const auto idle = idle_shares(one);
    const auto [least, most] = std::minmax_element(idle.begin(), idle.end());
    const std::string chunks = one.chunks() > 1 ? fmt::format(" (V = {})", one.chunks()) : "";
    table.add_row({one.name() + chunks, fmt::format("{:.6g} ms", one.simulation().makespan),
                   fmt::format("{:.2f} %", 100 * one.simulation().bubble_rate),
                   fmt::format("{:.1f} .. {:.1f} %", 100 * *least, 100 * *most), fmt::format("{:.2f}", one.peak())});
  }
  return table.text();
}

std::string head_of(const SimulateOptions& o) {
  std::string text = fmt::format(
      "{} stage{}, {} micro-batch{}; ms of a device for a micro-batch: forward {:g}, backward input {:g}, "
      "backward weight {:g}",
      o.stages, o.stages == 1 ? "" : "s", o.micro_batches, o.micro_batches == 1 ? "" : "es", o.forward, o.backward_input,
      o.backward_weight);
  if (o.recompute > 0) text += fmt::format(", recompute {:g}", o.recompute);
  if (o.transfer > 0) text += fmt::format("; transfer {:g} ms", o.transfer);
  return text;
}

std::string notes_of(const std::vector<Case>& cases, const SimulateOptions& options) {
  std::string over;
  for (const Case& one : cases)
    if (options.memory_limit > 0 && one.peak() > options.memory_limit * (1 + 1e-9))
      over += (over.empty() ? "" : ", ") + std::string(one.name());
  std::string text;
  if (!over.empty()) text += fmt::format("more than --memory-limit {:g}: {}\n", options.memory_limit, over);
  if (options.recompute > 0) text += "peak activations leave out the inputs that are kept for the recompute\n";
  return text;
}

}  // namespace

int run_simulate(const Command& command, const Catalog&) {
  const SimulateOptions& options = command.simulate;
  if (options.forward + options.backward_input + options.backward_weight <= 0)
    throw ConfigError("--forward, --backward-input and --backward-weight are all 0; one at least must take time");
  std::vector<Case> cases;
  for (const ScheduleType* type : schedules_of(options.schedules)) cases.emplace_back(*type, options);
  if (!options.svg.empty()) {
    std::vector<pipeline::Timeline> timelines;
    for (const Case& one : cases) timelines.push_back(one.timeline());
    base::replace_file(base::real_files(), options.svg, pipeline::svg_of(timelines));
  }
  if (command.json) {
    for (const Case& one : cases) fmt::print("{}\n", json_of(one, options).dump());
    return 0;
  }
  fmt::print("{}\n\n{}{}", head_of(options), table_of(cases), notes_of(cases, options));
  if (cases.size() == 1 && cases.front().tasks() <= k_most_drawn_tasks)
    fmt::print("\n{}", pipeline::text_of(cases.front().timeline()));
  return 0;
}

}  // namespace gpipe::app
