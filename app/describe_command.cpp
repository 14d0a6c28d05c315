// describe: what a network definition expands to: layers, shapes, parameters, operations, a drawing. No weight is allocated.
#include "app/commands.h"
#include "app/graph_picture.h"
#include "app/network_file.h"
#include "app/network_graph.h"
#include "app/run_config.h"
#include "app/yaml_tree.h"
#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/text.h"
#include "core/graph/builder.h"
#include "core/train/data.h"
#include "data/dataset_types.h"
#include "layers/composite_types.h"
#include "layers/layer_types.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>

namespace gpipe::app {
namespace {

using base::ConfigError;
using base::Tree;

/// A definition on its own, and what its samples look like.
struct Subject {
  Tree definition;
  graph::SampleShapes samples;
};

struct InputParts {
  std::vector<int64_t> shape;
  int64_t tokens = 0, targets = 0;
};

base::FieldSet<InputParts> input_fields() {
  base::FieldSet<InputParts> f{"input"};
  f.add("shape", &InputParts::shape).range(1, 1 << 30).help("of a sample: [height, width, channels] or [features]");
  f.add("tokens", &InputParts::tokens).range(0, 1 << 30).help("instead: ids in a sequence");
  f.add("targets", &InputParts::targets).range(0, 1 << 30).help("ids to predict, for a sequence; 0: as many as tokens");
  return f;
}

bool is_run_configuration(const Tree& tree) { return tree.is_map() && tree.find("network") != nullptr; }

/// `--set L=36` names a parameter; with dots it is a path in the file, and `network.` may be left out in a network file.
Override placed(Override override, bool run) {
  if (override.path.find('.') == std::string::npos) override.path = "params." + override.path;
  const std::string prefix = "network.";
  if (run && override.path.starts_with("params.")) override.path = prefix + override.path;
  if (!run && override.path.starts_with(prefix)) override.path = override.path.substr(prefix.size());
  return override;
}

void read_shape(const Tree& input, graph::SampleShapes& samples, base::Problems& problems) {
  InputParts parts;
  const size_t faults = problems.errors().size();
  input_fields().read(input, "network.input", parts, problems);
  if (problems.errors().size() != faults) return;
  const bool tokens = parts.tokens > 0;
  if (parts.shape.empty() != tokens || parts.shape.size() > 4 || (parts.targets > 0 && !tokens)) {
    problems.add(input.where(), "network.input",
                 "wanted {shape: [height, width, channels]}, {shape: [features]}, {tokens: N} or {tokens: N, targets: T}");
    return;
  }
  samples.input = tokens ? tensor::Shape{parts.tokens} : tensor::Shape(std::span<const int64_t>(parts.shape));
  samples.input_type = tokens ? tensor::DType::i32 : tensor::DType::f32;
  if (tokens) samples.target = {parts.targets > 0 ? parts.targets : parts.tokens};
}

/// `--input 224,224,3`, or `--input tokens:1024`
Tree flag_shape(const std::string& text) {
  const base::Location flag{std::make_shared<const std::string>("--input"), 0, 0};
  const std::string prefix = "tokens:";
  if (text.starts_with(prefix)) return Tree::map({{"tokens", Tree::scalar(text.substr(prefix.size()), false, flag)}}, flag);
  Tree list = Tree::list();
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find_first_of(",x", start), text.size());
    list.items().push_back(Tree::scalar(text.substr(start, end - start)));
    start = end + 1;
  }
  list.set_where(flag);
  for (Tree& item : list.items()) item.set_where(flag);
  return Tree::map({{"shape", list}}, flag);
}

/// The sample's shape: from --input, else from the definition, else from the run's data.
void find_shape(const Command& command, const RunConfig* run, Subject& subject, base::Problems& problems) {
  const Tree* input = subject.definition.is_map() ? subject.definition.find("input") : nullptr;
  if (!command.describe_input.empty()) {
    read_shape(flag_shape(command.describe_input), subject.samples, problems);
  } else if (input != nullptr) {
    const Tree* params = subject.definition.find("params");
    const base::Names names =
        graph::parameter_values(params != nullptr ? *params : Tree(), {}, nullptr, "network.params", problems);
    if (const auto values = base::substitute(*input, names, "network.input", problems))
      read_shape(*values, subject.samples, problems);
  } else if (run != nullptr) {
    const train::DataSets data =
        train::open_data(run->data, data::dataset_types(), static_cast<uint64_t>(run->train.seed), problems);
    if (data.train) {
      const train::SampleSpec& spec = data.train->spec();
      subject.samples = {spec.input, spec.target, spec.target_type, spec.classes, spec.input_type};
    }
  } else {
    throw ConfigError(
        "{}: the shape of a sample is not known: give --input 224,224,3, or `input: {{shape: [224, 224, 3]}}` in the file",
        command.config_file);
  }
}

Subject read_subject(const Command& command, const Catalog& catalog, base::Problems& problems) {
  const std::string& file = command.config_file;
  Tree tree = load_tree(file, {});
  const bool run = is_run_configuration(tree);
  for (const Override& override : command.overrides) {
    if (tree.is_list())
      throw ConfigError("{}: {} is a plain list of layers: it has no parameters", override.value.where().text(), file);
    apply(tree, placed(override, run));
  }
  Subject subject;
  if (run) {
    const RunConfig config = read_run_config(tree, file, catalog, problems);
    problems.throw_if_any();
    subject.definition = config.network;
    find_shape(command, &config, subject, problems);
  } else {
    subject.definition = resolve_network(tree, std::filesystem::path(file).parent_path(), problems);
    problems.throw_if_any();
    find_shape(command, nullptr, subject, problems);
  }
  problems.throw_if_any();
  return subject;
}

int64_t forward_flops(const graph::Network& network) {
  int64_t sum = 0;
  for (const graph::Node& node : network.nodes) sum += node.cost.forward_flops;
  return sum;
}

const graph::Value& output_of(const graph::Network& network, const graph::Node& node) {
  return network.values[static_cast<size_t>(node.output)];
}

std::string page_of(const graph::Network& network) {
  const auto right = base::Table::Align::right;
  base::Table table({{"layer", right}, {"name"}, {"type"}, {"output"}, {"parameters", right}, {"forward FLOP", right}});
  for (size_t i = 0; i < network.nodes.size(); ++i) {
    const graph::Node& node = network.nodes[i];
    const int64_t parameters = node.parameter_count();
    table.add_row({std::to_string(i + 1), node.name, node.type, fmt::format("{}", output_of(network, node).shape),
                   parameters > 0 ? base::format_count(parameters) : "",
                   node.cost.forward_flops > 0 ? base::format_count_short(node.cost.forward_flops) : ""});
  }
  const int64_t parameters = network.parameter_count();
  return fmt::format(
      "{}\n{} layers on a sample {}; {} parameters ({} as float32); {} FLOP forward a sample (a multiply-add is 2)\n",
      table.text(), base::format_count(static_cast<int64_t>(network.nodes.size())),
      network.values[static_cast<size_t>(network.input)].shape, base::format_count(parameters),
      base::format_bytes(4 * parameters), base::format_count(forward_flops(network)));
}

std::string json_of(const graph::Network& network) {
  using nlohmann::ordered_json;
  const auto name_of = [&](int value) {
    const int producer = network.values[static_cast<size_t>(value)].producer;
    return producer < 0 ? std::string("input") : network.nodes[static_cast<size_t>(producer)].name;
  };
  const graph::Value& input = network.values[static_cast<size_t>(network.input)];
  ordered_json layers = ordered_json::array();
  for (const graph::Node& node : network.nodes) {
    ordered_json inputs = ordered_json::array();
    for (const int value : node.inputs) inputs.push_back(name_of(value));
    layers.push_back({{"name", node.name},
                      {"type", node.type},
                      {"inputs", std::move(inputs)},
                      {"output", output_of(network, node).shape.extents()},
                      {"parameters", node.parameter_count()},
                      {"forward_flops", node.cost.forward_flops}});
  }
  return ordered_json{{"input", input.shape.extents()},
                      {"layer_count", network.nodes.size()},
                      {"parameters", network.parameter_count()},
                      {"forward_flops", forward_flops(network)},
                      {"layers", std::move(layers)}}
      .dump();
}

/// The deepest level of names that still makes a picture which a person can read.
int picture_depth(const graph::Network& network, int64_t asked) {
  constexpr size_t legible = 300, most = 3000;
  int depth = asked > 0 ? static_cast<int>(asked) : levels_of(network);
  while (asked == 0 && depth > 1 && boxes_at(network, depth) > legible) --depth;
  if (const size_t boxes = boxes_at(network, depth); boxes > most)
    throw ConfigError("--svg: {} boxes are more than {}: take a smaller --depth, or --dot and a program that draws as much",
                      boxes, most);
  return depth;
}

}  // namespace

int run_describe(const Command& command, const Catalog& catalog) {
  base::Problems problems;
  const Subject subject = read_subject(command, catalog, problems);
  const graph::Network network = graph::build_layers(subject.definition, "network", subject.samples, layers::layer_types(),
                                                     layers::composite_types(), problems);
  problems.throw_if_any();
  const std::string title = std::filesystem::path(command.config_file).stem().string();
  if (!command.dot.empty()) {
    const int depth = command.depth > 0 ? static_cast<int>(command.depth) : levels_of(network);
    base::replace_file(base::real_files(), command.dot, dot_of(network, title, depth));
  }
  if (!command.svg.empty()) {
    const int depth = picture_depth(network, command.depth);
    if (command.depth == 0 && depth < levels_of(network))
      fmt::print(stderr, "--svg: drawn to {} levels of names of {}; --depth chooses\n", depth, levels_of(network));
    base::replace_file(base::real_files(), command.svg, svg_of_dot(dot_of(network, title, depth)));
  }
  fmt::print("{}", command.json ? json_of(network) + "\n" : page_of(network));
  return 0;
}

}  // namespace gpipe::app
