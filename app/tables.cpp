#include "app/tables.h"

#include "core/base/text.h"

#include <fmt/format.h>

#include <algorithm>

namespace gpipe::app {
namespace {

using base::Table;

int64_t flops_of(const graph::Cost& cost) { return cost.forward_flops; }

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
    const bool loss = node.is_loss;
    table.add_row({loss ? "" : std::to_string(i + 1), node.name, node.type,
                   network.values[static_cast<size_t>(node.output)].shape.text(),
                   parameters > 0 ? base::format_count(parameters) : "",
                   flops_of(node.cost) > 0 ? base::format_count_short(flops_of(node.cost)) : ""});
  }
  table.add_rule();
  table.add_row({"", "total", "", "", base::format_count(network.parameter_count()), base::format_count_short(flops)});
  return table.text();
}

std::string batch_words(const Composition& c) {
  const pipeline::MicroBatches& micro = c.plan->micro_batches;
  const auto batches = micro.distinct();
  std::string text = fmt::format("{} samples a mini-batch in {} micro-batch{} of {}{}", micro.mini_batch, micro.count(),
                                 micro.count() == 1 ? "" : "es", batches.front(),
                                 batches.size() > 1 ? fmt::format(" or {}", batches.back()) : "");
  const int64_t samples = c.data.train->size();
  const train::EpochOrder order = training_order(c);
  const int64_t per_epoch = order.batches();
  text += fmt::format("\n{} training samples make {} mini-batches an epoch", base::format_count(samples),
                      base::format_count(per_epoch));
  if (order.samples() != samples)
    text += fmt::format(" ({} samples left out of each, data.drop_last)", samples - order.samples());
  const int64_t steps = c.config.train.steps > 0 ? c.config.train.steps : c.config.train.epochs * per_epoch;
  text += fmt::format("; {} steps in all\n", base::format_count(steps));
  return text;
}

}  // namespace gpipe::app
