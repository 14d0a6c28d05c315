// plan --costs: a partition from a table of costs alone: no network, no data, no device.
#include "app/commands.h"
#include "app/config_fields.h"
#include "app/layer_costs.h"
#include "core/base/error.h"
#include "core/base/text.h"
#include "core/pipeline/device_list.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace gpipe::app {
namespace {

/// The `pipeline:` part that the flags make. What a table of costs cannot answer is refused.
pipeline::PipelineOptions options_of(const Command& command, const Catalog& catalog) {
  base::Tree tree = base::Tree::map();
  for (const Override& value : command.overrides) apply(tree, value);
  base::Problems problems;
  pipeline::PipelineOptions options;
  for (const auto& [section, settings] : tree.members()) {
    if (section != "pipeline") {
      problems.add(tree.key_where(section), section, "a table of costs alone has no use for it; leave it out");
      continue;
    }
    for (const auto& [key, value] : settings.members())
      if (key != "partitions" && key != "objective" && key != "speeds")
        problems.add(settings.key_where(key), "pipeline." + key,
                     "a table of costs alone has no use for it; partitions, objective and speeds are what counts");
    pipeline_fields(catalog).read(settings, "pipeline", options, problems);
  }
  problems.throw_if_any();
  return options;
}

std::string table_of(const std::vector<LayerCost>& layers, const pipeline::Partition& split) {
  using base::Table;
  const auto right = Table::Align::right;
  Table table({{"stage", right}, {"layers", right}, {"from .. to"}, {"ms", right}, {"of the slowest", right}, {"sends", right}});
  for (size_t stage = 0; stage < split.loads.size(); ++stage) {
    const auto first = static_cast<size_t>(split.boundaries[stage]);
    const auto last = static_cast<size_t>(split.boundaries[stage + 1]) - 1;
    const double share = split.bottleneck > 0 ? split.loads[stage] / split.bottleneck : 1;
    table.add_row({std::to_string(stage), fmt::format("{}-{}", first + 1, last + 1),
                   fmt::format("{} .. {}", layers[first].name, layers[last].name), fmt::format("{:.3f}", split.loads[stage]),
                   fmt::format("{:.1f} %", 100 * share),
                   stage + 1 < split.loads.size() ? base::format_bytes(layers[last].activation_bytes) : ""});
  }
  return table.text();
}

}  // namespace

int run_plan_of_costs(const Command& command, const Catalog& catalog) {
  const pipeline::PipelineOptions options = options_of(command, catalog);
  const std::vector<LayerCost> layers = read_layer_costs(command.costs_file);
  const int stages = static_cast<int>(options.partitions);
  pipeline::PartitionProblem problem = problem_of(layers, stages);
  base::Problems problems;
  problem.speeds = pipeline::read_devices(options, stages, 0, problems).speeds;
  problems.throw_if_any();
  // There is no limit, so there is a split.
  const auto split = std::get<pipeline::Partition>(pipeline::partition(problem, options.objective));
  const std::string objective = pipeline_fields(catalog).write(options).find("objective")->text();
  if (command.json) {
    nlohmann::json counts = nlohmann::json::array();
    for (size_t stage = 0; stage < split.loads.size(); ++stage)
      counts.push_back(split.boundaries[stage + 1] - split.boundaries[stage]);
    fmt::print("{}\n", nlohmann::json{{"partitions", stages},
                                      {"objective", objective},
                                      {"counts", counts},
                                      {"stage_ms", split.loads},
                                      {"bottleneck_ms", split.bottleneck},
                                      {"variance_ms2", split.variance},
                                      {"bytes_cut", split.bytes_cut}}
                           .dump());
    return 0;
  }
  fmt::print("{}\n{}: the slowest stage takes {:.3f} ms, the variance is {:.6g} ms2; {} cut\n", table_of(layers, split),
             objective, split.bottleneck, split.variance, base::format_bytes(split.bytes_cut));
  return 0;
}

}  // namespace gpipe::app
