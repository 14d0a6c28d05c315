#include "app/tables.h"

#include "core/base/text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>

namespace gpipe::app {
namespace {

using base::Table;

int64_t flops_of(const graph::Cost& cost) { return cost.forward_flops; }

std::string bytes(size_t count) { return base::format_bytes(static_cast<int64_t>(count)); }

int64_t parameters_of(const pipeline::Plan& plan, const pipeline::StagePlan& stage) {
  int64_t sum = 0;
  for (int node = stage.first_node; node < stage.last_node; ++node)
    sum += plan.network.nodes[static_cast<size_t>(node)].parameter_count();
  return sum;
}

nlohmann::json memory_json(const pipeline::StageMemory& memory) {
  return {{"parameters", memory.parameters},   {"gradients", memory.gradients}, {"optimizer", memory.optimizer},
          {"packed", memory.packed},           {"buffers", memory.buffers},     {"edges", memory.edges},
          {"activations", memory.activations}, {"working", memory.working},     {"total", memory.total()}};
}

/// What the arenas are made of, a line a stage; a kind that no stage has is left out.
std::string memory_table(const pipeline::Plan& plan) {
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
    if (std::any_of(plan.stages.begin(), plan.stages.end(), has)) there.push_back(kind);
  }
  std::vector<Table::Column> columns{{"arena", Table::Align::right}};
  for (const Kind& kind : there) columns.push_back({kind.title, Table::Align::right});
  Table table(std::move(columns));
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    std::vector<std::string> row{std::to_string(i)};
    for (const Kind& kind : there) row.push_back(bytes(kind.of(plan.stages[i].memory)));
    table.add_row(std::move(row));
  }
  return table.text();
}

}  // namespace

std::string layer_table(const graph::Network& network) {
  Table table({{"#", Table::Align::right},
               {"layer"},
               {"type"},
               {"output"},
               {"parameters", Table::Align::right},
               {"FLOPs/sample", Table::Align::right}});
  int64_t flops = 0;
  for (size_t i = 0; i < network.nodes.size(); ++i) {
    const graph::Node& node = network.nodes[i];
    const int64_t parameters = node.parameter_count();
    flops += flops_of(node.cost);
    const bool loss = static_cast<int>(i) == network.loss_node();
    table.add_row({loss ? "" : std::to_string(i + 1), node.name, node.type,
                   network.values[static_cast<size_t>(node.output)].shape.text(),
                   parameters > 0 ? base::format_count(parameters) : "",
                   flops_of(node.cost) > 0 ? base::format_count_short(flops_of(node.cost)) : ""});
  }
  table.add_rule();
  table.add_row({"", "total", "", "", base::format_count(network.parameter_count()), base::format_count_short(flops)});
  return table.text();
}

std::string stage_table(const pipeline::Plan& plan) {
  const auto right = Table::Align::right;
  Table table({{"stage", right}, {"layers", right}, {"from .. to"}, {"threads", right}, {"parameters", right}, {"arena", right}});
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const pipeline::StagePlan& stage = plan.stages[i];
    const int last = std::min(stage.last_node, plan.network.loss_node());
    table.add_row({std::to_string(i), fmt::format("{}-{}", stage.first_node + 1, last),
                   fmt::format("{} .. {}", plan.network.nodes[static_cast<size_t>(stage.first_node)].name,
                               plan.network.nodes[static_cast<size_t>(last) - 1].name),
                   std::to_string(stage.backend->info().threads), base::format_count(parameters_of(plan, stage)),
                   bytes(stage.memory.total())});
  }
  if (plan.stages.size() > 1) {
    table.add_rule();
    table.add_row({"", "", "total", "", base::format_count(plan.network.parameter_count()), bytes(plan.arena_bytes())});
  }
  return table.text() + "\n" + memory_table(plan);
}

std::string batch_words(const Composition& c) {
  const pipeline::MicroBatches& micro = c.plan->micro_batches;
  const auto batches = micro.distinct();
  std::string text = fmt::format("{} samples a mini-batch in {} micro-batch{} of {}{}", micro.mini_batch, micro.count(),
                                 micro.count() == 1 ? "" : "es", batches.front(),
                                 batches.size() > 1 ? fmt::format(" or {}", batches.back()) : "");
  const int64_t samples = c.data.train->size();
  const int64_t batch = c.config.train.batch_size;
  const int64_t per_epoch = c.config.data.drop_last ? samples / batch : (samples + batch - 1) / batch;
  text += fmt::format("\n{} training samples make {} mini-batches an epoch", base::format_count(samples),
                      base::format_count(per_epoch));
  if (c.config.data.drop_last && samples % batch != 0)
    text += fmt::format(" ({} samples left out of each, data.drop_last)", samples % batch);
  const int64_t steps = c.config.train.steps > 0 ? c.config.train.steps : c.config.train.epochs * per_epoch;
  text += fmt::format("; {} steps in all\n", base::format_count(steps));
  const double stages = static_cast<double>(c.plan->stages.size());
  if (c.plan->stages.size() > 1)
    text += fmt::format(
        "{} stages, schedule {}, {}: with equal stages {:.0f} % of their time is idle, (K-1)/(M+K-1)\n", c.plan->stages.size(),
        c.config.pipeline.schedule,
        c.config.pipeline.rematerialize == pipeline::Rematerialize::full ? "activations recomputed" : "activations kept",
        100.0 * (stages - 1) / (static_cast<double>(micro.count()) + stages - 1));
  return text;
}

std::string transfer_words(const pipeline::Plan& plan) {
  std::string text;
  for (const pipeline::EdgePlan& edge : plan.edges) {
    const graph::Value& value = plan.network.values[static_cast<size_t>(edge.value)];
    text += fmt::format("  stage {} -> {}: {} of {} {}, {} a mini-batch\n", edge.from, edge.to,
                        edge.gradient ? "gradient" : "output", plan.network.nodes[static_cast<size_t>(value.producer)].name,
                        value.shape.text(), bytes(plan.bytes_sent(edge)));
  }
  return text.empty() ? text : "sent between stages:\n" + text;
}

nlohmann::json plan_json(const Composition& c) {
  const pipeline::Plan& plan = *c.plan;
  nlohmann::json json{{"partitions", plan.stages.size()},
                      {"micro_batches", plan.micro_batches.count()},
                      {"micro_batch_sizes", plan.micro_batches.sizes},
                      {"schedule", c.config.pipeline.schedule},
                      {"parameters", plan.network.parameter_count()},
                      {"arena_bytes", plan.arena_bytes()}};
  json["stages"] = nlohmann::json::array();
  for (const pipeline::StagePlan& stage : plan.stages) {
    nlohmann::json nodes = nlohmann::json::array();
    for (int node = stage.first_node; node < stage.last_node; ++node)
      nodes.push_back(plan.network.nodes[static_cast<size_t>(node)].name);
    json["stages"].push_back({{"layers", nodes},
                              {"parameters", parameters_of(plan, stage)},
                              {"threads", stage.backend->info().threads},
                              {"memory_bytes", memory_json(stage.memory)}});
  }
  json["transfers"] = nlohmann::json::array();
  for (const pipeline::EdgePlan& edge : plan.edges)
    json["transfers"].push_back(
        {{"from", edge.from},
         {"to", edge.to},
         {"what", edge.gradient ? "gradient" : "output"},
         {"layer", plan.network.nodes[static_cast<size_t>(plan.network.values[static_cast<size_t>(edge.value)].producer)].name},
         {"bytes_per_mini_batch", plan.bytes_sent(edge)},
         {"slots", edge.slots}});
  return json;
}

}  // namespace gpipe::app
