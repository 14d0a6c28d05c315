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
  // Flags of its own whose values have a type and a range: the keys of a field set, and how they come into the command.
  base::FieldTable (*values)() = nullptr;
  void (*read_values)(const base::Tree& values, Command& command, base::Problems& problems) = nullptr;
  bool shortcuts = true;  // with a configuration: the flags that are short for a --set
};

base::FieldSet<Command> train_flags() {
  base::FieldSet<Command> f{"train"};
  f.add("--trace", &Command::trace)
      .range(1, 10000)
      .unit("steps")
      .help("write their real timeline to trace.json (for ui.perfetto.dev) and timeline.svg of the run folder");
  return f;
}
base::FieldTable train_values() { return train_flags().table(); }
void read_train_values(const base::Tree& values, Command& command, base::Problems& problems) {
  train_flags().read(values, "", command, problems);
}
base::FieldSet<Command> describe_flags() {
  base::FieldSet<Command> f{"describe"};
  f.add("--input", &Command::describe_input)
      .help("shape of a sample, as in 224,224,3 or tokens:1024, instead of the definition's or the data's");
  f.add("--dot", &Command::dot).help("a file for the graph in Graphviz's language");
  f.add("--svg", &Command::svg).help("a file for a drawing of the graph");
  f.add("--depth", &Command::depth).range(0, 100).unit("levels").help("of names that are drawn; below them a block is one box");
  return f;
}
base::FieldTable describe_values() { return describe_flags().table(); }
void read_describe_values(const base::Tree& values, Command& command, base::Problems& problems) {
  describe_flags().read(values, "", command, problems);
}
base::FieldSet<Command> plan_flags() {
  base::FieldSet<Command> f{"plan"};
  f.add("--svg", &Command::svg).help("a file for the picture of the simulated step");
  return f;
}
base::FieldTable plan_values() { return plan_flags().table(); }
void read_plan_values(const base::Tree& values, Command& command, base::Problems& problems) {
  plan_flags().read(values, "", command, problems);
}
base::FieldTable simulate_values() { return simulate_fields().table(); }
void read_simulate_values(const base::Tree& values, Command& command, base::Problems& problems) {
  simulate_fields().read(values, "", command.simulate, problems);
}
base::FieldTable tokenize_values() { return tokenize_fields().table(); }
void read_tokenize_values(const base::Tree& values, Command& command, base::Problems& problems) {
  tokenize_fields().read(values, "", command.tokenize, problems);
}
base::FieldTable generate_values() { return generate_fields().table(); }
void read_generate_values(const base::Tree& values, Command& command, base::Problems& problems) {
  generate_fields().read(values, "", command.generate, problems);
  settle(command.generate, values, problems);
}

const std::vector<Verb>& verbs() {
  static const std::vector<Verb> all{
      {"train",
       "train a network (also when no command is given)",
       true,
       {"--output", "--profile", "--profile-from", "--resume", "--dry-run", "--quiet", "--json"},
       train_values,
       read_train_values},
      {"eval",
       "measure a trained network on the validation data",
       true,
       {"--output", "--checkpoint", "--bleu", "--quiet", "--json"}},
      {"predict",
       "write a trained network's predictions, continue a text, translate",
       true,
       {"--checkpoint", "--input", "--predictions", "--quiet"},
       generate_values,
       read_generate_values},
      {"bleu", "compare translations with references, as sacreBLEU does", false, {"--json"}},
      {"plan",
       "show what a run would do: stages, time, memory, transfers, what to change",
       true,
       {"--output", "--profile", "--profile-from", "--search", "--costs", "--json"},
       plan_values,
       read_plan_values},
      {"simulate",
       "compare schedules by given costs: makespan, bubble, memory, picture",
       false,
       {"--json"},
       simulate_values,
       read_simulate_values},
      {"tokenize", "train a SentencePiece model; text to tokens and back", false, {}, tokenize_values, read_tokenize_values},
      {"profile", "measure what every node of the network takes", true, {"--profile-output", "--json"}},
      {"check", "validate a configuration with its data, network and plan; nothing is made or trained", true, {"--output"}},
      {"describe",
       "show what a network expands to: layers, shapes, parameters, operations, a drawing",
       true,
       {"--json"},
       describe_values,
       read_describe_values,
       false},
      {"config", "print the merged configuration", true, {"--output"}},
      {"devices", "list the devices of this machine", false, {}},
      {"version", "print the version", false, {}},
      {"verify",
       "compare a pipelined training step with an unpiped one, bit by bit",
       true,
       {"--output", "--profile", "--profile-from"}},
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
constexpr std::array<Shortcut, 6> shortcuts{{
    {"--device", "pipeline.device", "NAME", true},
    {"--threads", "pipeline.threads", "N", false},
    {"--partitions", "pipeline.partitions", "K", false},
    {"--micro-batches", "pipeline.micro_batches", "M", false},
    {"--objective", "pipeline.objective", "NAME", true},
    {"--output", "output.folder", "DIR", true},
}};

/// What CLI11 fills in while it parses; it must outlive the parser's objects.
struct Filled {
  std::string config_file;
  std::vector<std::string> sets;
  std::map<std::string, std::string> shortcut_values;
  std::map<std::string, std::vector<std::string>> values;  // by flag, as given
  std::string resume_from, checkpoint, input, predictions, costs, profile_from, profile_output, hypotheses, references;
  bool profile = false, search = false, bleu = false, dry_run = false, quiet = false, json = false;
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
  flag("--profile", filled.profile, "measure every node here, and on GPUs the algorithms; balance the stages by that");
  if (has(verb, "--profile-from")) {
    sub.add_option("--profile-from", filled.profile_from, "the same from a profile that was saved for this network and device")
        ->type_name("FILE");
  }
  if (has(verb, "--profile-output")) {
    sub.add_option("--output", filled.profile_output, "file to write, for --profile-from (default: none)")->type_name("FILE");
  }
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
    sub.add_option("--output", filled.predictions, "file to write, one line a sample or the text (default: standard output)")
        ->type_name("FILE");
  }
  flag("--search", filled.search, "try every K, M, schedule, V and recompute policy by simulation, and show the best ten");
  if (has(verb, "--costs")) {
    sub.add_option("--costs", filled.costs,
                   "instead of CONFIG: a JSON list of layers with forward_ms and backward_ms, cut by cost")
        ->type_name("FILE");
  }
  flag("--bleu", filled.bleu, "translate it as well, greedily, and compare with its targets (BLEU); for parallel text");
  flag("--dry-run", filled.dry_run, "check everything and print the plan, but do not train");
  flag("--quiet", filled.quiet, "no progress lines");
  flag("--json", filled.json, "the result as one line of JSON, last");
}

/// What a flag's value is called in help.
std::string value_name(const base::FieldInfo& info) {
  if (info.unit == "ms") return "MS";
  if (info.unit == "FILE" || info.unit == "PREFIX" || info.unit == "TEXT") return info.unit;
  if (info.type == base::FieldInfo::Type::integer) return "N";
  return info.type == base::FieldInfo::Type::number ? "X" : info.key == "--svg" || info.key == "--dot" ? "FILE" : "NAME";
}

void add_values(CLI::App& sub, const Verb& verb, Filled& filled) {
  if (verb.values == nullptr) return;
  const base::FieldTable table = verb.values();
  for (size_t i = 0; i < table.infos.size(); ++i) {
    const base::FieldInfo& info = table.infos[i];
    const bool list = info.type == base::FieldInfo::Type::text_list;
    const std::string range = base::range_of(info);
    const std::string preset = info.required ? "required" : table.defaults[i].text().empty() ? "" : base::default_of(table, i);
    const std::string more =
        range + (range.empty() || preset.empty() ? "" : "; ") + (preset.empty() || info.required ? preset : "default " + preset);
    CLI::Option* option = sub.add_option(info.key, filled.values[info.key], info.help + (more.empty() ? "" : " (" + more + ")"))
                              ->type_name(value_name(info))
                              ->expected(1)
                              ->multi_option_policy(list ? CLI::MultiOptionPolicy::TakeAll : CLI::MultiOptionPolicy::Throw)
                              ->allow_extra_args(false);
    if (list && info.unit == "FILE") option->expected(1, 1 << 20)->allow_extra_args();  // a shell pattern
  }
}

/// The values that were given, read by the verb's own fields; all faults at once.
void read_values(const Verb& verb, const Filled& filled, Command& command) {
  if (verb.values == nullptr) return;
  base::Tree given = base::Tree::map();
  for (const base::FieldInfo& info : verb.values().infos) {
    const std::vector<std::string>& words = filled.values.at(info.key);
    if (words.empty()) continue;
    // What is to be text is text, whatever it looks like.
    const bool text = info.type == base::FieldInfo::Type::text || info.type == base::FieldInfo::Type::text_list;
    base::Tree list = base::Tree::list();
    for (const std::string& word : words) list.items().push_back(base::Tree::scalar(word, text));
    given.set(info.key, info.type == base::FieldInfo::Type::text_list ? list : list.items().back());
  }
  base::Problems problems;
  verb.read_values(given, command, problems);
  problems.throw_if_any();
}

void add_configuration(CLI::App& sub, const Verb& verb, const std::vector<Section>& sections, Filled& filled) {
  const bool describes = verb.name == "describe";
  sub.add_option(describes ? "NETWORK" : "CONFIG", filled.config_file,
                 describes ? "network file or configuration, in YAML" : "configuration, a YAML file")
      ->type_name("FILE");
  sub.add_option("--set", filled.sets,
                 describes ? "set one parameter of the network, e.g. L=36; repeatable"
                           : "set one value, e.g. train.seed=3, network.params.L=36, network.0.conv2d.bias=false; repeatable")
      ->type_name("KEY=VALUE")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
  for (const Shortcut& shortcut : shortcuts) {
    if (!verb.shortcuts) break;
    if (std::string_view(shortcut.flag) == "--output" && !has(verb, "--output")) continue;
    sub.add_option(shortcut.flag, filled.shortcut_values[shortcut.flag], shortcut_help(sections, shortcut.path))
        ->type_name(shortcut.value_name);
  }
}

void add_verb(CLI::App& app, const Verb& verb, const std::vector<Section>& sections, Filled& filled) {
  CLI::App& sub = *app.add_subcommand(verb.name, verb.summary);
  sub.group("Commands");
  sub.allow_extras();  // so that it is us who name the nearest flag
  if (verb.configured) add_configuration(sub, verb, sections, filled);
  if (verb.name == "bleu") {
    sub.add_option("HYPOTHESES", filled.hypotheses, "translations, one a line, plain or gzip")->type_name("FILE")->required();
    sub.add_option("REFERENCES", filled.references, "what each should be, line by line")->type_name("FILE")->required();
  }
  add_flags(sub, verb, filled);
  add_values(sub, verb, filled);
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

Command to_command(const CLI::App& sub, const Verb& verb, Filled& filled) {
  Command command;
  command.verb = sub.get_name();
  command.resume = sub.get_option_no_throw("--resume") != nullptr && sub.count("--resume") > 0;
  // "--resume CONFIG" reads as a folder; without another configuration it can only have meant one.
  if (command.resume && filled.config_file.empty()) std::swap(filled.config_file, filled.resume_from);
  command.config_file = filled.config_file;
  for (const std::string& set : filled.sets) command.overrides.push_back(parse_set(set));
  for (const Shortcut& row : shortcuts) {
    const CLI::Option* option = verb.configured ? sub.get_option_no_throw(row.flag) : nullptr;
    if (option == nullptr || option->count() == 0) continue;
    const bool other_output = command.verb == "predict" || command.verb == "profile";  // a file of their own
    if (other_output && std::string_view(row.flag) == "--output") continue;
    command.overrides.push_back(shortcut(row.flag, row.path, filled.shortcut_values[row.flag], row.is_text));
  }
  command.resume_from = filled.resume_from;
  if (!command.resume_from.empty() && filled.shortcut_values.count("--output") > 0 &&
      sub.get_option_no_throw("--output") != nullptr && sub.count("--output") > 0)
    throw base::ConfigError(
        "--resume {} goes on in that folder: leave out --output, or start a new run from its weights by "
        "train.init_from",
        command.resume_from);
  command.checkpoint = filled.checkpoint;
  command.predict_input = filled.input;
  command.predict_output = filled.predictions;
  command.costs_file = filled.costs;
  command.profile = filled.profile;
  command.search = filled.search;
  command.profile_from = filled.profile_from;
  command.profile_output = filled.profile_output;
  command.hypotheses = filled.hypotheses;
  command.references = filled.references;
  command.bleu = filled.bleu;
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
  const auto row = std::find_if(verbs().begin(), verbs().end(), [&](const Verb& v) { return v.name == sub.get_name(); });
  Command command = to_command(sub, *row, filled);
  read_values(*row, filled, command);
  if (command.profile && !command.profile_from.empty())
    throw ConfigError("{}: --profile measures, --profile-from takes what was measured: give one of them", command.verb);
  if (command.search && !command.svg.empty())
    throw ConfigError(
        "plan: --search shows no timeline: --svg draws that of a plan; put what the search found into the "
        "configuration first");
  if (!command.costs_file.empty()) {
    if (command.search || command.profile || !command.profile_from.empty() || !command.svg.empty())
      throw ConfigError(
          "plan: --costs cuts a table of costs alone: --search, --profile, --profile-from and --svg want a "
          "configuration");
    if (!command.config_file.empty())
      throw ConfigError("plan: {} and --costs are both there: a table of costs needs no configuration",
                        base::shown(command.config_file));
  } else if (row->configured && command.config_file.empty()) {
    throw ConfigError("{0}: a configuration is missing, as in gpipe-train {0} configs/digits.yaml", command.verb);
  }
  return command;
}

}  // namespace gpipe::app
