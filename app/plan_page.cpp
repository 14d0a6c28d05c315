#include "app/plan_page.h"

#include "app/tables.h"
#include "app/yaml_writer.h"
#include "core/base/text.h"
#include "core/device/algorithms.h"
#include "core/pipeline/advice.h"
#include "core/pipeline/search.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <numeric>

namespace gpipe::app {
namespace {

using base::Table;

std::string bytes(size_t count) { return base::format_bytes(static_cast<int64_t>(count)); }

int64_t parameters_of(const pipeline::Plan& plan, const pipeline::StagePlan& stage) {
  int64_t sum = 0;
  for (int node = stage.first_node; node < stage.last_node; ++node)
    sum += plan.network.nodes[static_cast<size_t>(node)].parameter_count();
  return sum;
}

nlohmann::json memory_json(const pipeline::StageMemory& memory) {
  return {{"parameters", memory.parameters},   {"gradients", memory.gradients},
          {"optimizer", memory.optimizer},     {"packed", memory.packed},
          {"buffers", memory.buffers},         {"edges", memory.edges},
          {"activations", memory.activations}, {"working", memory.working},
          {"staged", memory.staged},           {"total", memory.total()}};
}

}  // namespace

PlanPage::PlanPage(const Composition& composition)
    : c_(composition), plan_(*composition.plan), prediction_(pipeline::predict(plan_)) {
  if (const std::string misfit = pipeline::misfit_words(plan_); !misfit.empty()) warnings_.push_back(misfit);
  const auto words = pipeline::advice({plan_, prediction_, pipeline::usable_cores(plan_.options)});
  warnings_.insert(warnings_.end(), words.begin(), words.end());
  if (plan_.buckets() > 1) plan_buckets();
}

void PlanPage::plan_buckets() {
  const train::SampleSpec& spec = c_.data.train->spec();
  std::vector<int64_t> batches = training_order(c_).batches_by_bucket();
  batches.resize(static_cast<size_t>(plan_.buckets()), 0);
  for (int index = 0; index < plan_.buckets(); ++index) {
    const pipeline::Plan& plan = plan_.bucket(index);
    const pipeline::Prediction step = pipeline::predict(plan);
    buckets_.push_back(
        {spec.bucket(index), batches[static_cast<size_t>(index)],
         std::max(step.step_seconds(), pipeline::least_seconds(plan, step, pipeline::usable_cores(plan_.options)))});
    if (buckets_.back().batches == 0)
      warnings_.push_back(
          fmt::format("no mini-batch is of the bucket {}, {}: no training sample fits into it and no narrower one"
                      "{}; do without it",
                      spec.bucket(index).input, spec.bucket(index).target,
                      c_.config.data.drop_last ? ", or too few for data.drop_last" : ""));
  }
}

double PlanPage::share(const Bucket& bucket) const {
  int64_t all = 0;
  for (const Bucket& each : buckets_) all += each.batches;
  return static_cast<double>(bucket.batches) / static_cast<double>(std::max<int64_t>(1, all));
}

double PlanPage::samples_per_second() const { return static_cast<double>(plan_.micro_batches.mini_batch) / step_seconds(); }

double PlanPage::step_seconds() const {
  if (!buckets_.empty())
    return std::accumulate(buckets_.begin(), buckets_.end(), 0.0,
                           [&](double sum, const Bucket& b) { return sum + share(b) * b.step_seconds; });
  return std::max(prediction_.step_seconds(), pipeline::least_seconds(plan_, prediction_, pipeline::usable_cores(plan_.options)));
}

double PlanPage::median_step_seconds() const {
  std::vector<Bucket> ascending = buckets_;
  std::sort(ascending.begin(), ascending.end(), [](const Bucket& a, const Bucket& b) { return a.step_seconds < b.step_seconds; });
  double sum = 0;
  for (const Bucket& bucket : ascending)
    if ((sum += share(bucket)) >= 0.5) return bucket.step_seconds;
  return step_seconds();
}

pipeline::Timeline PlanPage::timeline() const {
  constexpr double k_ms = 1000;
  const pipeline::Simulation& simulation = prediction_.simulation;
  pipeline::Timeline timeline(
      fmt::format("{}: {}, K={}, M={}, rematerialize {}: {:.3g} ms predicted, {:.1f} % idle", c_.config.name,
                  plan_.options.schedule, plan_.schedule.devices, plan_.micro_batches.count(),
                  name_of(plan_.options.rematerialize), k_ms * prediction_.step_seconds(), 100 * prediction_.bubble()),
      plan_.schedule.devices, plan_.schedule.stages, k_ms * simulation.makespan);
  pipeline::predict(plan_, [&](pipeline::Span span) {
    span.start *= k_ms;
    span.end *= k_ms;
    timeline.add(span);
  });
  for (int device = 0; device < plan_.schedule.devices; ++device) {
    const double update = k_ms * prediction_.update[static_cast<size_t>(device)];
    if (update > 0) timeline.add_update(device, k_ms * simulation.makespan - update, k_ms * simulation.makespan);
  }
  return timeline;
}

std::string PlanPage::text() const {
  std::string text =
      stage_table() + "\n" + memory_table() + transfer_words() + "\n" + batch_words(c_) + bucket_table() + speed_words();
  if (plan_.schedule.devices > 1) text += "\n" + pipeline::text_of(timeline());
  for (const std::string& warning : warnings_) text += base::wrap("warning: " + warning, 110, 9) + "\n";
  return text;
}

std::string PlanPage::bucket_table() const {
  if (buckets_.empty()) return "";
  const auto right = Table::Align::right;
  Table table({{"bucket"}, {"mini-batches", right}, {"share", right}, {"step", right}});
  for (const Bucket& bucket : buckets_)
    table.add_row({fmt::format("{}, {}", bucket.shape.input, bucket.shape.target), base::format_count(bucket.batches),
                   fmt::format("{:.0f} %", 100 * share(bucket)), base::format_duration(bucket.step_seconds)});
  return "a mini-batch has samples of one bucket; stages, memory and timeline are those of the widest\n" + table.text();
}

nlohmann::json PlanPage::buckets_json() const {
  nlohmann::json json = nlohmann::json::array();
  const auto extents = [](const tensor::Shape& shape) {
    return std::vector<int64_t>(shape.extents().begin(), shape.extents().end());
  };
  for (const Bucket& bucket : buckets_)
    json.push_back({{"input", extents(bucket.shape.input)},
                    {"target", extents(bucket.shape.target)},
                    {"batches_per_epoch", bucket.batches},
                    {"share", share(bucket)},
                    {"step_seconds", bucket.step_seconds}});
  return json;
}

std::string PlanPage::stage_table() const {
  const auto right = Table::Align::right;
  const bool chunks = plan_.schedule.stages > plan_.schedule.devices;
  std::vector<Table::Column> columns{{"stage", right}, {"layers", right}, {"from .. to"},  {"parameters", right},
                                     {"time", right},  {"share", right},  {"arena", right}};
  if (chunks) columns.insert(columns.begin() + 1, {"device", right});
  Table table(std::move(columns));
  double slowest = 0;
  double sum = 0;
  for (size_t i = 0; i < plan_.stages.size(); ++i) {
    const double seconds = prediction_.stage_seconds(static_cast<int>(i), plan_);
    slowest = std::max(slowest, seconds);
    sum += seconds;
  }
  const auto add_row = [&](std::vector<std::string> row, const std::string& device) {
    if (chunks) row.insert(row.begin() + 1, device);
    table.add_row(std::move(row));
  };
  for (size_t i = 0; i < plan_.stages.size(); ++i) {
    const pipeline::StagePlan& stage = plan_.stages[i];
    const int last = std::min(stage.last_node, plan_.network.loss_node());
    const double seconds = prediction_.stage_seconds(static_cast<int>(i), plan_);
    add_row({std::to_string(i), fmt::format("{}-{}", stage.first_node + 1, last),
             fmt::format("{} .. {}", plan_.network.nodes[static_cast<size_t>(stage.first_node)].name,
                         plan_.network.nodes[static_cast<size_t>(last) - 1].name),
             base::format_count(parameters_of(plan_, stage)), base::format_duration(seconds),
             fmt::format("{:.0f} %", 100 * seconds / slowest), bytes(stage.memory.total())},
            std::to_string(stage.device));
  }
  if (plan_.stages.size() > 1) {
    table.add_rule();
    add_row({"", "", "total", base::format_count(plan_.network.parameter_count()), base::format_duration(sum), "",
             bytes(plan_.arena_bytes())},
            "");
  }
  return table.text();
}

/// What the arenas are made of, a line a stage; a kind that no stage has is left out.
std::string PlanPage::memory_table() const {
  using Memory = pipeline::StageMemory;
  struct Kind {
    const char* title;
    size_t (*of)(const Memory& memory);
  };
  constexpr std::array<Kind, 8> kinds{{{"weights", [](const Memory& m) { return m.parameters; }},
                                       {"gradients", [](const Memory& m) { return m.gradients; }},
                                       {"optimizer", [](const Memory& m) { return m.optimizer; }},
                                       {"packed", [](const Memory& m) { return m.packed; }},
                                       {"averages", [](const Memory& m) { return m.buffers; }},
                                       {"edges", [](const Memory& m) { return m.edges; }},
                                       {"kept", [](const Memory& m) { return m.activations; }},
                                       {"working", [](const Memory& m) { return m.working; }}}};
  std::vector<Kind> there;
  for (const Kind& kind : kinds) {
    const auto has = [&](const pipeline::StagePlan& stage) { return kind.of(stage.memory) > 0; };
    if (std::any_of(plan_.stages.begin(), plan_.stages.end(), has)) there.push_back(kind);
  }
  std::vector<Table::Column> columns{{"arena", Table::Align::right}};
  for (const Kind& kind : there) columns.push_back({kind.title, Table::Align::right});
  Table table(std::move(columns));
  for (size_t i = 0; i < plan_.stages.size(); ++i) {
    std::vector<std::string> row{std::to_string(i)};
    for (const Kind& kind : there) row.push_back(bytes(kind.of(plan_.stages[i].memory)));
    table.add_row(std::move(row));
  }
  return table.text();
}

std::string PlanPage::transfer_words() const {
  std::string text;
  for (const pipeline::EdgePlan& edge : plan_.edges) {
    const graph::Value& value = plan_.network.values[static_cast<size_t>(edge.value)];
    text += fmt::format("  stage {} -> {}: {} of {} {}, {} a mini-batch\n", edge.from, edge.to,
                        edge.gradient ? "gradient" : "output", plan_.network.nodes[static_cast<size_t>(value.producer)].name,
                        value.shape.text(), bytes(plan_.bytes_sent(edge)));
  }
  return text.empty() ? text : "sent between stages:\n" + text;
}

std::string PlanPage::speed_words() const {
  const pipeline::MemoryVerdict memory = pipeline::memory_verdict(plan_);
  std::string text =
      fmt::format("schedule {}, rematerialize {}, {} thread{} a device", plan_.options.schedule,
                  pipeline::name_of(plan_.options.rematerialize), plan_.options.threads, plan_.options.threads == 1 ? "" : "s");
  if (plan_.recompute_bound > 0)
    text += fmt::format("; it keeps {:.0f} % of what at most could be saved of recompute within the limit",
                        100 * plan_.recompute_saved / plan_.recompute_bound);
  text = base::wrap(text, 110);
  text += fmt::format("\npredicted: {} a step{}, {} samples/s, {:.1f} % idle\n(times {})\n",
                      base::format_duration(step_seconds()), buckets_.empty() ? "" : " on average",
                      base::format_count(static_cast<int64_t>(samples_per_second())), 100 * prediction_.bubble(), c_.costs_from);
  text += fmt::format("memory: {} of {} on the fullest device\n", base::format_bytes(memory.bytes),
                      memory.limit > 0 ? base::format_bytes(memory.limit) : std::string("an unknown amount"));
  return text;
}

nlohmann::json PlanPage::stage_json(size_t index) const {
  const pipeline::StagePlan& stage = plan_.stages[index];
  const pipeline::StageCost& cost = prediction_.stages[index];
  nlohmann::json nodes = nlohmann::json::array();
  for (int node = stage.first_node; node < stage.last_node; ++node)
    nodes.push_back(plan_.network.nodes[static_cast<size_t>(node)].name);
  return {{"device", stage.device},
          {"layers", nodes},
          {"parameters", parameters_of(plan_, stage)},
          {"threads", stage.backend->info().threads},
          {"seconds",
           {{"forward", cost.forward},
            {"recompute", cost.recompute},
            {"backward_input", cost.backward_input},
            {"backward_weight", cost.backward_weight},
            {"step", prediction_.stage_seconds(static_cast<int>(index), plan_)}}},
          {"memory_bytes", memory_json(stage.memory)}};
}

nlohmann::json PlanPage::json() const {
  const pipeline::MemoryVerdict memory = pipeline::memory_verdict(plan_);
  nlohmann::json json{
      {"partitions", plan_.schedule.devices},
      {"chunks", plan_.schedule.stages / plan_.schedule.devices},
      {"micro_batches", plan_.micro_batches.count()},
      {"micro_batch_sizes", plan_.micro_batches.sizes},
      {"schedule", plan_.options.schedule},
      {"rematerialize", pipeline::name_of(plan_.options.rematerialize)},
      {"parameters", plan_.network.parameter_count()},
      {"arena_bytes", plan_.arena_bytes()},
      {"predicted",
       {{"step_seconds", step_seconds()},
        {"simulated_seconds", prediction_.step_seconds()},
        {"samples_per_second", samples_per_second()},
        {"bubble", prediction_.bubble()},
        {"update_seconds", prediction_.update},
        {"times", c_.costs_from}}},
      {"memory", {{"fullest_device", memory.device}, {"bytes", memory.bytes}, {"limit", memory.limit}, {"fits", memory.fits()}}},
      {"warnings", warnings_}};
  if (const auto algorithms = plan_.options.algorithms->choices(); !algorithms.empty()) json["algorithms"] = algorithms;
  if (plan_.recompute_bound > 0)
    json["recompute"] = {{"saved_seconds", plan_.recompute_saved}, {"bound_seconds", plan_.recompute_bound}};
  if (!buckets_.empty()) json["buckets"] = buckets_json();
  json["stages"] = nlohmann::json::array();
  for (size_t stage = 0; stage < plan_.stages.size(); ++stage) json["stages"].push_back(stage_json(stage));
  json["transfers"] = nlohmann::json::array();
  for (const pipeline::EdgePlan& edge : plan_.edges)
    json["transfers"].push_back(
        {{"from", edge.from},
         {"to", edge.to},
         {"what", edge.gradient ? "gradient" : "output"},
         {"layer", plan_.network.nodes[static_cast<size_t>(plan_.network.values[static_cast<size_t>(edge.value)].producer)].name},
         {"bytes_per_mini_batch", plan_.bytes_sent(edge)},
         {"slots", edge.slots}});
  return json;
}

void require_fit(const pipeline::Plan& plan) {
  if (const std::string words = pipeline::misfit_words(plan); !words.empty())
    throw base::MemoryError("the plan does not fit: {}", words);
}

}  // namespace gpipe::app
