// profile: what every node of a network takes on this machine, as a table, as JSON, as a file for --profile-from.
#include "app/commands.h"
#include "app/session.h"
#include "core/base/files.h"
#include "core/base/text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace gpipe::app {
namespace {

std::string milliseconds(double seconds) { return seconds > 0 ? fmt::format("{:.3f}", 1e3 * seconds) : ""; }

std::string profile_table(const ProfileFile& file, pipeline::Rematerialize policy) {
  using base::Table;
  const auto right = Table::Align::right;
  Table table({{"#", right},
               {"layer"},
               {"forward", right},
               {"back: data", right},
               {"back: weights", right},
               {"pack", right},
               {"update", right},
               {"share", right},
               {"kept", right},
               {"output", right}});
  pipeline::NodeProfile sum;
  for (const pipeline::NodeProfile& node : file.profile) {
    sum.forward += node.forward;
    sum.backward_input += node.backward_input;
    sum.backward_weight += node.backward_weight;
    sum.pack += node.pack;
    sum.update += node.update;
    sum.kept_bytes += node.kept_bytes;
  }
  const auto add = [&](const std::string& number, const std::string& name, const pipeline::NodeProfile& node) {
    const double share = sum.total(policy) > 0 ? node.total(policy) / sum.total(policy) : 0;
    const auto bytes = [](int64_t count) { return count > 0 ? base::format_bytes(count) : std::string(); };
    table.add_row({number, name, milliseconds(node.forward), milliseconds(node.backward_input),
                   milliseconds(node.backward_weight), milliseconds(node.pack), milliseconds(node.update),
                   fmt::format("{:.1f} %", 100 * share), bytes(node.kept_bytes), bytes(node.output_bytes)});
  };
  for (size_t i = 0; i < file.nodes.size(); ++i) add(std::to_string(i + 1), file.nodes[i].name, file.profile[i]);
  table.add_rule();
  add("", "total", sum);
  return table.text();
}

}  // namespace

int run_profile(const Command& command, const Catalog& catalog) {
  if (!command.profile_output.empty() && base::kind_of(command.profile_output))
    throw base::FileError("{}: it is there already; give another name for --output", command.profile_output);
  Command measuring = command;
  measuring.profile = true;
  const auto c = open_session(measuring, catalog);
  const ProfileFile file = profile_file(*c);
  const std::string text = to_json(file).dump(2) + "\n";
  if (!command.profile_output.empty()) base::write_new_file(base::real_files(), command.profile_output, text);
  if (command.json) {
    fmt::print("{}", text);
    return 0;
  }
  const bool recompute = c->config.pipeline.rematerialize == pipeline::Rematerialize::full;
  fmt::print("{}\n", profile_table(file, c->config.pipeline.rematerialize));
  fmt::print("ms for a micro-batch of {} on {} thread{}, {}, {}; pack and update: for a mini-batch\n", file.micro_batch,
             file.threads, file.threads == 1 ? "" : "s", file.device, file.library);
  fmt::print("share: of a micro-batch's time{}\n", recompute ? ", forward counted twice (recompute is forward again)" : "");
  if (!command.profile_output.empty()) fmt::print("written to {}\n", command.profile_output);
  return 0;
}

}  // namespace gpipe::app
