#include "app/run_config.h"

#include "app/config_fields.h"
#include "app/network_file.h"
#include "app/yaml_tree.h"
#include "core/base/choice.h"
#include "core/base/error.h"
#include "core/base/scalar.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

namespace gpipe::app {
namespace {

using base::Location;
using base::Problems;
using base::Tree;

std::string name_of(const std::string& file) {
  const std::filesystem::path path(file);
  const bool yaml = path.extension() == ".yaml" || path.extension() == ".yml";
  return (yaml ? path.stem() : path.filename()).string();
}

/// Where "train.steps" stands, or the nearest part above it that the file has.
const Location& place_of(const Tree& tree, const std::string& part, const std::string& key) {
  const Tree* section = tree.find(part);
  if (section == nullptr) return tree.where();
  const Tree* value = section->find(key);
  return value != nullptr ? value->where() : tree.key_where(part);
}

/// A choice and its settings, by the tables alone; null stands for the default of whoever reads it.
void check_choice(const Tree& tree, const std::string& path, const std::string& what, const std::vector<CatalogEntry>& entries,
                  Problems& problems) {
  if (tree.is_null() || entries.empty()) return;
  const auto choice = base::read_choice(tree, path, what, names_of(entries), problems);
  if (!choice) return;
  const auto entry = std::find_if(entries.begin(), entries.end(), [&](const auto& e) { return e.name == choice->name; });
  // A plain word has no place for its missing settings but its own.
  Tree arguments = choice->arguments;
  if (arguments.is_null()) arguments.set_where(choice->where);
  base::check_fields(arguments, base::detail::join_path(path, choice->name), entry->fields, problems);
}

void check_length(const RunConfig& config, const Tree& tree, Problems& problems) {
  const auto& train = config.train;
  if ((train.epochs > 0) == (train.steps > 0)) {
    problems.add(place_of(tree, "train", train.steps > 0 ? "steps" : "epochs"), "train.epochs",
                 fmt::format("exactly one of train.epochs and train.steps must be above 0, found epochs {} and steps {}",
                             train.epochs, train.steps));
  }
  int exponent = 0;
  if (train.loss_scale > 0 && std::frexp(train.loss_scale, &exponent) != 0.5)
    problems.add(place_of(tree, "train", "loss_scale"), "train.loss_scale",
                 fmt::format("wanted a power of two, so that no bit of a gradient changes, found {:g}; {:g} is near",
                             train.loss_scale, std::ldexp(1.0, exponent - 1)));
  if (train.steps > 0 && train.warmup_steps >= train.steps) {
    problems.warn(place_of(tree, "train", "warmup_steps"), "train.warmup_steps",
                  fmt::format("{} warm-up steps do not end before the run of {} steps", train.warmup_steps, train.steps));
  }
}

void check_search(const RunConfig& config, const Tree& tree, Problems& problems) {
  const std::vector<std::string> known{"partitions", "micro_batches", "schedule", "rematerialize"};
  for (const std::string& name : config.pipeline.search_keeps) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string near = base::nearest(name, known);
    problems.add(place_of(tree, "pipeline", "search_keeps"), "pipeline.search_keeps",
                 fmt::format("a search does not choose \"{}\"{}; it chooses {}", name,
                             near.empty() ? "" : fmt::format(", did you mean \"{}\"?", near), fmt::join(known, ", ")));
  }
}

void check_together(const RunConfig& config, const Tree& tree, Problems& problems) {
  check_length(config, tree, problems);
  check_search(config, tree, problems);
  if (!config.pipeline.search && config.pipeline.micro_batches > config.train.batch_size) {
    problems.add(place_of(tree, "pipeline", "micro_batches"), "pipeline.micro_batches",
                 fmt::format("{} micro-batches are more than the {} samples of train.batch_size: each needs a sample",
                             config.pipeline.micro_batches, config.train.batch_size));
  }
  if (config.train.learning_rate == 0) {
    problems.warn(place_of(tree, "train", "learning_rate"), "train.learning_rate", "0 leaves all weights as they are");
  }
  if (!config.data.validation.is_null() && config.data.validation_split > 0) {
    problems.add(place_of(tree, "data", "validation_split"), "data.validation_split",
                 "validation samples come from data.validation or from a split, not from both");
  }
  const std::string& folder = config.output.folder;
  const bool control = std::any_of(folder.begin(), folder.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; });
  if (folder.empty() || control) {
    problems.add(place_of(tree, "output", "folder"), "output.folder",
                 fmt::format("wanted a path without line breaks, found {}", base::shown(folder)));
  }
}

void check_choices(const RunConfig& config, const Catalog& catalog, Problems& problems) {
  check_choice(config.data.train, "data.train", "data set", catalog.datasets, problems);
  check_choice(config.data.validation, "data.validation", "data set", catalog.datasets, problems);
  check_choice(config.train.loss, "train.loss", "loss", catalog.losses, problems);
  check_choice(config.train.optimizer, "train.optimizer", "optimizer", catalog.optimizers, problems);
  check_choice(config.train.schedule, "train.schedule", "learning-rate schedule", catalog.rates, problems);
}

/// Settings that are nothing by default are left out: null says no more than absence.
Tree without_nulls(Tree map) {
  auto& members = map.members();
  members.erase(std::remove_if(members.begin(), members.end(), [](const auto& member) { return member.second.is_null(); }),
                members.end());
  return map;
}

}  // namespace

std::string RunConfig::output_folder() const {
  const std::string mark = "{name}";
  std::string folder = output.folder;
  for (size_t at = folder.find(mark); at != std::string::npos; at = folder.find(mark, at + name.size())) {
    folder.replace(at, mark.size(), name);
  }
  return folder;
}

Tree load_tree(const std::string& file, const std::vector<Override>& overrides) {
  Tree tree = read_yaml_file(file);
  if (tree.is_null()) {
    const auto fields = part_fields();
    throw base::ConfigError("{}: no configuration: the file has no values; the first key wanted is \"{}\", the {}", file,
                            fields.infos().front().key, fields.infos().front().help);
  }
  for (const Override& override : overrides) apply(tree, override);
  return tree;
}

RunConfig read_run_config(const Tree& tree, const std::string& file, const Catalog& catalog, Problems& problems) {
  RunConfig config;
  config.name = name_of(file);
  Parts parts;
  const size_t faults = problems.errors().size();
  if (tree.is_map() && tree.find("layers") != nullptr && tree.find("network") == nullptr) {
    problems.add(tree.key_where("layers"), "layers",
                 fmt::format("this is a network definition: gpipe-train describe {} shows it, and a configuration names it by "
                             "network: {{file: ...}}",
                             file));
    return config;
  }
  part_fields().read(tree, "", parts, problems);
  // Fields of a part that is not there at all would only repeat that it is missing.
  const auto read = [&](const auto& fields, const Tree& part, auto& out) {
    if (!part.is_null()) fields.read(part, fields.name(), out, problems);
  };
  if (parts.pipeline.is_scalar() && parts.pipeline.text() == "auto")
    config.pipeline.search = true;
  else
    read(pipeline_fields(catalog), parts.pipeline, config.pipeline);
  read(data_fields(), parts.data, config.data);
  read(train_fields(), parts.train, config.train);
  read(checkpoint_fields(), parts.checkpoint, config.checkpoint);
  read(output_fields(), parts.output, config.output);
  check_choices(config, catalog, problems);
  if (!parts.network.is_null()) {
    config.network = resolve_network(parts.network, std::filesystem::path(file).parent_path(), problems);
  }
  // What holds between settings makes sense only when each of them was read.
  if (problems.errors().size() == faults) check_together(config, tree, problems);
  config.warnings = problems.warnings();
  return config;
}

RunConfig load_run_config(const std::string& file, const std::vector<Override>& overrides, const Catalog& catalog) {
  Problems problems;
  RunConfig config = read_run_config(load_tree(file, overrides), file, catalog, problems);
  problems.throw_if_any();
  return config;
}

Tree write_run_config(const RunConfig& config) {
  Tree tree = Tree::map();
  tree.set("network", config.network);
  tree.set("pipeline", without_nulls(pipeline_fields({}).write(config.pipeline)));
  tree.set("data", without_nulls(data_fields().write(config.data)));
  tree.set("train", without_nulls(train_fields().write(config.train)));
  tree.set("checkpoint", without_nulls(checkpoint_fields().write(config.checkpoint)));
  tree.set("output", without_nulls(output_fields().write(config.output)));
  return tree;
}

}  // namespace gpipe::app
