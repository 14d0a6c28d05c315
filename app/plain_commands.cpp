// The verbs that only read and print; check opens the data and plans the run, but no verb here gets device memory.
#include "app/commands.h"
#include "app/config_schema.h"
#include "app/plan_page.h"
#include "app/run_config.h"
#include "app/session.h"
#include "app/yaml_writer.h"
#include "core/base/text.h"
#include "core/device/backend.h"

#include <fmt/format.h>

#include <cstdio>

namespace gpipe::app {
namespace {

RunConfig load_with_warnings(const Command& command, const Catalog& catalog) {
  RunConfig config = load_run_config(command.config_file, command.overrides, catalog);
  for (const std::string& warning : config.warnings) fmt::print(stderr, "warning: {}\n", warning);
  return config;
}

}  // namespace

int run_help(const Command& command, const Catalog&) {
  fmt::print("{}", command.text);
  return 0;
}

int run_check(const Command& command, const Catalog& catalog) {
  const auto c = open_session(command, catalog);
  require_fit(*c->plan);
  fmt::print("{}: the configuration is good: {} layers in {} stage{}, {} parameters, {} of memory; {}\n", command.config_file,
             c->network->nodes.size() - 1, c->plan->stages.size(), c->plan->stages.size() == 1 ? "" : "s",
             base::format_count(c->network->parameter_count()), base::format_bytes(static_cast<int64_t>(c->plan->arena_bytes())),
             c->data.train->describe());
  return 0;
}

int run_config(const Command& command, const Catalog& catalog) {
  fmt::print("{}", write_yaml(write_run_config(load_with_warnings(command, catalog))));
  return 0;
}

int run_devices(const Command&, const Catalog&) {
  for (const std::string& line : device::describe_devices()) fmt::print("{}\n", line);
  return 0;
}

int run_version(const Command&, const Catalog&) {
  fmt::print("gpipe-train {} ({})\n", GPIPE_VERSION, GPIPE_BUILD);
  return 0;
}

int run_schema(const Command&, const Catalog& catalog) {
  fmt::print("{}\n", config_schema(catalog).dump(2));
  return 0;
}

}  // namespace gpipe::app
