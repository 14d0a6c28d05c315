#include "app/cli.h"

#include "app/config_fields.h"
#include "app/config_schema.h"
#include "core/base/choice.h"
#include "core/base/error.h"
#include "core/base/scalar.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <string_view>

namespace gpipe::app {
namespace {

using base::ConfigError;

/// What a verb understands.
struct Verb {
  std::string name;
  std::string summary;
  bool configured = true;          // takes CONFIG, --set and the shortcuts
  std::vector<std::string> flags;  // of those that not every configured verb has
};

const std::vector<Verb>& verbs() {
  static const std::vector<Verb> all{
      {"train",
       "train a network (also when no command is given)",
       true,
       {"--output", "--profile", "--resume", "--dry-run", "--quiet", "--json"}},
      {"eval", "measure a trained network on the validation data", true, {"--output", "--checkpoint", "--quiet", "--json"}},
      {"predict", "write a trained network's predictions", true, {"--checkpoint", "--input", "--predictions", "--quiet"}},
      {"plan", "show what a run would do: stages, parameters, memory, transfers", true, {"--output", "--json"}},
      {"check", "validate a configuration with its data, network and plan; nothing is made or trained", true, {"--output"}},
      {"config", "print the merged configuration", true, {"--output"}},
      {"devices", "list the devices of this machine", false, {}},
      {"version", "print the version", false, {}},
      {"verify", "compare a pipelined training step with an unpiped one, bit by bit", true, {"--output"}},
      {"schema", "print the JSON Schema of configurations, for editors", false, {}},
  };
  return all;
}

/// A flag that sets one value of the configuration.
struct Shortcut {
  const char* flag;
  const char* path;
  const char* value_name;
  bool is_text;
};
constexpr std::array<Shortcut, 5> shortcuts{{
    {"--device", "pipeline.device", "NAME", true},
    {"--threads", "pipeline.threads", "N", false},
    {"--partitions", "pipeline.partitions", "K", false},
    {"--micro-batches", "pipeline.micro_batches", "M", false},
    {"--output", "output.folder", "DIR", true},
}};

/// What CLI11 fills in while it parses; it must outlive the parser's objects.
struct Filled {
  std::string config_file;
  std::vector<std::string> sets;
  std::map<std::string, std::string> shortcut_values;
  std::string resume_from, checkpoint, input, predictions;
  bool profile = false, dry_run = false, quiet = false, json = false;
};

bool has(const Verb& verb, const std::string& flag) {
  return std::find(verb.flags.begin(), verb.flags.end(), flag) != verb.flags.end();
}

std::string shortcut_help(const std::vector<Section>& sections, const std::string& path) {
  const FoundField field = find_field(sections, path);
  return fmt::format("{}: {} ({}; default {})", path, field.info.help, base::domain_of(field.info), field.default_text);
}

void add_flags(CLI::App& sub, const Verb& verb, Filled& filled) {
  const auto flag = [&](const char* name, bool& value, const char* help) {
    if (has(verb, name)) sub.add_flag(name, value, help);
  };
  flag("--profile", filled.profile, "measure the cost of every node here and balance the stages by it");
  if (has(verb, "--resume")) {
    sub.add_option("--resume", filled.resume_from, "go on from the newest good checkpoint of DIR (default: the run folder)")
        ->expected(0, 1)
        ->type_name("[DIR]");
  }
  if (has(verb, "--checkpoint")) {
    sub.add_option("--checkpoint", filled.checkpoint, "checkpoint to load (default: the best of the run folder, else the newest)")
        ->type_name("DIR");
  }
  if (has(verb, "--input")) {
    sub.add_option("--input", filled.input, "data set as data.train has it, e.g. '{csv: {path: new.csv}}' (default: validation)")
        ->type_name("DATA");
  }
  if (has(verb, "--predictions")) {
    sub.add_option("--output", filled.predictions, "file to write, one line a sample (default: standard output)")
        ->type_name("FILE");
  }
  flag("--dry-run", filled.dry_run, "check everything and print the plan, but do not train");
  flag("--quiet", filled.quiet, "no progress lines");
  flag("--json", filled.json, "the result as one line of JSON, last");
}

void add_verb(CLI::App& app, const Verb& verb, const std::vector<Section>& sections, Filled& filled) {
  CLI::App& sub = *app.add_subcommand(verb.name, verb.summary);
  sub.group("Commands");
  sub.allow_extras();  // so that it is us who name the nearest flag
  if (!verb.configured) return;
  sub.add_option("CONFIG", filled.config_file, "configuration, a YAML file")->type_name("FILE");
  sub.add_option("--set", filled.sets, "set one value, e.g. train.seed=3 or network.0.conv2d.bias=false; repeatable")
      ->type_name("KEY=VALUE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
  for (const Shortcut& shortcut : shortcuts) {
    if (std::string_view(shortcut.flag) == "--output" && !has(verb, "--output")) continue;
    sub.add_option(shortcut.flag, filled.shortcut_values[shortcut.flag], shortcut_help(sections, shortcut.path))
        ->type_name(shortcut.value_name);
  }
  add_flags(sub, verb, filled);
}

std::vector<std::string> flags_of(const CLI::App& sub) {
  std::vector<std::string> names;
  for (const CLI::Option* option : sub.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

/// What the verb did not understand, in the user's order.
void refuse_extras(const CLI::App& sub) {
  const std::vector<std::string> extras = sub.remaining();
  if (extras.empty()) return;
  const auto flag = std::find_if(extras.begin(), extras.end(), [](const auto& word) { return word.starts_with("-"); });
  if (flag == extras.end()) {
    throw ConfigError("{}: {} is one argument too many; try gpipe-train {} --help", sub.get_name(), base::shown(extras.front()),
                      sub.get_name());
  }
  const std::string word = flag->substr(0, flag->find('='));
  const std::string near = base::nearest(word, flags_of(sub));
  throw ConfigError("{}: unknown flag {}{} try gpipe-train {} --help", sub.get_name(), base::shown(word),
                    near.empty() ? ";" : fmt::format(", did you mean {}?", near), sub.get_name());
}

bool looks_like_file(const std::string& word) {
  std::error_code ignored;
  return word.find('/') != std::string::npos || word.ends_with(".yaml") || word.ends_with(".yml") ||
         std::filesystem::is_regular_file(word, ignored);
}

/// Puts the verb in front when it was left out, and refuses a first word that is no verb.
void settle_verb(std::vector<std::string>& arguments) {
  const std::vector<std::string> known = known_verbs();
  if (arguments.empty()) {
    throw ConfigError("wanted a command or a configuration, as in gpipe-train train configs/digits.yaml; commands: {}",
                      fmt::join(known, ", "));
  }
  const std::string& first = arguments.front();
  if (first == "--version") arguments.front() = "version";
  if (first == "help") arguments.front() = "--help";
  if (first == "-h" || first == "--help" || std::find(known.begin(), known.end(), first) != known.end()) return;
  if (first.starts_with("-") || looks_like_file(first)) {
    arguments.insert(arguments.begin(), "train");
    return;
  }
  const std::string near = base::nearest(first, known);
  throw ConfigError("unknown command {}{} known: {}", base::shown(first),
                    near.empty() ? ";" : fmt::format(", did you mean \"{}\"?", near), fmt::join(known, ", "));
}

void describe(CLI::App& app, const std::vector<Section>& sections, Filled& filled) {
  app.require_subcommand(1);
  app.get_formatter()->column_width(36);
  app.get_formatter()->label("SUBCOMMAND", "COMMAND");
  for (const Verb& verb : verbs()) add_verb(app, verb, sections, filled);
  app.footer(
      "gpipe-train CONFIG is short for gpipe-train train CONFIG.\n"
      "gpipe-train COMMAND --help explains a command; gpipe-train config --help lists every setting of a configuration.");
}

Command to_command(const CLI::App& sub, Filled& filled) {
  Command command;
  command.verb = sub.get_name();
  command.resume = sub.get_option_no_throw("--resume") != nullptr && sub.count("--resume") > 0;
  // "--resume CONFIG" reads as a folder; without another configuration it can only have meant one.
  if (command.resume && filled.config_file.empty()) std::swap(filled.config_file, filled.resume_from);
  command.config_file = filled.config_file;
  for (const std::string& set : filled.sets) command.overrides.push_back(parse_set(set));
  for (const Shortcut& row : shortcuts) {
    const CLI::Option* option = sub.get_option_no_throw(row.flag);
    if (option == nullptr || option->count() == 0 || (command.verb == "predict" && std::string_view(row.flag) == "--output")) {
      continue;
    }
    command.overrides.push_back(shortcut(row.flag, row.path, filled.shortcut_values[row.flag], row.is_text));
  }
  command.resume_from = filled.resume_from;
  command.checkpoint = filled.checkpoint;
  command.predict_input = filled.input;
  command.predict_output = filled.predictions;
  command.profile = filled.profile;
  command.dry_run = filled.dry_run;
  command.quiet = filled.quiet;
  command.json = filled.json;
  return command;
}

}  // namespace

std::vector<std::string> known_verbs() {
  std::vector<std::string> names;
  for (const Verb& verb : verbs()) names.push_back(verb.name);
  return names;
}

Command parse_command_line(std::vector<std::string> arguments, const Catalog& catalog) {
  settle_verb(arguments);
  Filled filled;
  CLI::App app("gpipe-train trains neural networks as pipelines of stages (GPipe)", "gpipe-train");
  describe(app, config_sections(catalog), filled);
  const std::string verb = arguments.front();
  try {
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
    app.parse(std::move(arguments));
  } catch (const CLI::CallForHelp&) {
    Command help;
    help.verb = "help";
    help.text = app.help();
    if (verb == "config") help.text += "\n" + config_reference(catalog);
    return help;
  } catch (const CLI::ParseError& error) { throw ConfigError("{}: {}; try gpipe-train {} --help", verb, error.what(), verb); }
  const CLI::App& sub = *app.get_subcommands().front();
  refuse_extras(sub);
  Command command = to_command(sub, filled);
  const auto row = std::find_if(verbs().begin(), verbs().end(), [&](const Verb& v) { return v.name == command.verb; });
  if (row->configured && command.config_file.empty()) {
    throw ConfigError("{0}: a configuration is missing, as in gpipe-train {0} configs/digits.yaml", command.verb);
  }
  return command;
}

}  // namespace gpipe::app
