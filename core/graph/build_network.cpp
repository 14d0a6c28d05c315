// From entries to a whole network: nodes, costs, the loss, and what can only be checked at the end.
#include "core/base/error.h"
#include "core/base/fields.h"
#include "core/graph/builder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

namespace gpipe::graph {
namespace {

const std::string k_loss_name = "loss";
constexpr size_t k_most_nodes = 200000;  // what repeat may blow a few lines up to

}  // namespace

int64_t Node::parameter_count() const {
  int64_t sum = 0;
  for (const ParameterSpec& parameter : parameters)
    if (parameter.tied_to.empty()) sum += parameter.shape.elements();
  return sum;
}

int64_t Network::parameter_count() const {
  int64_t sum = 0;
  for (const Node& node : nodes) sum += node.parameter_count();
  return sum;
}

const LayerType* NetworkBuilder::find_layer(const std::string& name) const {
  const auto found = std::find_if(layers_.begin(), layers_.end(), [&](const LayerType* type) { return type->name == name; });
  return found == layers_.end() ? nullptr : *found;
}

const CompositeType* NetworkBuilder::find_composite(const std::string& name) const {
  const auto found =
      std::find_if(composites_.begin(), composites_.end(), [&](const CompositeType* type) { return type->name == name; });
  return found == composites_.end() ? nullptr : *found;
}

std::vector<std::string> NetworkBuilder::known_types(bool losses) const {
  std::vector<std::string> names;
  for (const LayerType* type : layers_)
    if (type->is_loss == losses) names.push_back(type->name);
  if (!losses)
    for (const CompositeType* type : composites_) names.push_back(type->name);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());  // concat is a layer and a composite
  return names;
}

void NetworkBuilder::read_cost(const std::optional<base::Tree>& cost, const std::string& path, const std::string& name, int first,
                               const base::Location& where) {
  const bool inside = scopes_.size() > 1;
  if (!cost) {
    if (!inside && without_cost_.empty()) first_without_cost_ = where;
    if (!inside) without_cost_.push_back(name);
    return;
  }
  if (inside) {
    problems_.add(cost->where(), path, "a cost stands on entries of the network's own list only, for all that they hold");
    return;
  }
  base::FieldInfo info;
  info.low = 0;
  info.open_low = true;
  info.high = 1e12;
  if (const auto number = base::detail::read_number(*cost, path, info, problems_))
    network_.given_costs.push_back({first, static_cast<int>(network_.nodes.size()), *number});
}

void NetworkBuilder::check_costs() {
  if (network_.given_costs.empty() || without_cost_.empty()) return;
  constexpr size_t shown = 5;
  const size_t count = without_cost_.size();
  if (count > shown) without_cost_.resize(shown);
  problems_.add(first_without_cost_, "network",
                fmt::format("{} entries have a `cost`, but {} have none ({}{}): numbers of one unit are compared, so give it to "
                            "all or to none",
                            network_.given_costs.size(), count, fmt::join(without_cost_, ", "), count > shown ? ", ..." : ""));
}

bool NetworkBuilder::check_count(const LayerType& type, size_t count, const std::string& found, const std::string& path,
                                 const base::Location& where) {
  const auto least = static_cast<size_t>(type.min_inputs), most = static_cast<size_t>(type.max_inputs);
  if (count >= least && count <= most) return true;
  problems_.add(
      where, path,
      fmt::format("{} takes {} input{}, found {}; name them with `inputs: [a, b]`", type.name,
                  least == most ? fmt::format("{}", least) : fmt::format("{} or more", least), most == 1 ? "" : "s", found));
  return false;
}

std::optional<Bundle> NetworkBuilder::add_layer(const std::string& type, const Expansion& use) {
  const Bundle& in = use.inputs;
  if (!check_count(*find_layer(type), in.values.size(), in.size_text(), use.path, use.where)) return std::nullopt;
  return add_node(type, use.arguments, use.path, use.name, in.values, use.where);
}

std::optional<int> NetworkBuilder::add_node(const std::string& type_name, const base::Tree& arguments, const std::string& path,
                                            const std::string& name, std::span<const int> inputs, const base::Location& where) {
  const LayerType* type = find_layer(type_name);
  GP_CHECK(type != nullptr);
  if (!check_count(*type, inputs.size(), fmt::format("{}", inputs.size()), path, where)) return std::nullopt;
  Node node;
  node.name = name;
  node.type = type_name;
  node.where = where;
  node.inputs.assign(inputs.begin(), inputs.end());
  node.layer = type->make(arguments, path, problems_);
  if (node.layer == nullptr) return std::nullopt;
  std::vector<Shape> shapes;
  for (int input : inputs) shapes.push_back(shape_of(input));
  std::vector<DType> types;
  for (int input : inputs) types.push_back(network_.values[static_cast<size_t>(input)].dtype);
  Shape output;
  DType output_type = DType::f32;
  try {
    if (network_.nodes.size() >= k_most_nodes) throw base::ConfigError("the network has more than {} layers", k_most_nodes);
    output_type = node.layer->output_type(types);
    output = node.layer->output_shape(shapes);
    if (output.elements() > std::numeric_limits<int32_t>::max())
      throw base::ConfigError("its output {} has more than 2^31 elements a sample", output);
    node.parameters = node.layer->parameters(shapes);
    node.buffers = node.layer->buffers(shapes);
    node.cost = node.layer->cost(shapes, output);
  } catch (const base::Error& error) {
    problems_.add(where, path, fmt::format("layer {} '{}': {}", network_.nodes.size() + 1, name, error.what()));
    return std::nullopt;
  }
  const int index = static_cast<int>(network_.nodes.size());
  bool wants_gradient = !node.parameters.empty();
  for (int input : inputs) {
    Value& value = network_.values[static_cast<size_t>(input)];
    value.consumers.push_back(index);
    wants_gradient = wants_gradient || value.wants_gradient;
  }
  node.output = static_cast<int>(network_.values.size());
  network_.values.push_back({output, output_type, index, {}, wants_gradient && output_type == DType::f32});
  network_.nodes.push_back(std::move(node));
  return network_.nodes.back().output;
}

std::optional<int> NetworkBuilder::add_loss(int prediction, double weight, const std::string& name, const base::Location& where) {
  if (loss_ == nullptr) {
    heads_.push_back(prediction);
    return prediction;
  }
  base::Choice choice{data_.target_type == DType::i32 ? "cross_entropy" : "mse", {}, loss_->is_null() ? where : loss_->where()};
  if (!loss_->is_null()) {
    const auto read = base::read_choice(*loss_, loss_path_, "loss", known_types(true), problems_);
    if (!read) return std::nullopt;
    choice = *read;
  }
  const Shape& given = shape_of(prediction);
  if (data_.target_type == DType::i32 && given.rank() >= 1 && given.back() < data_.classes) {
    problems_.add(where, "network",
                  fmt::format("the last layer gives {} values, but the data has {} classes; make it {}", given.back(),
                              data_.classes, data_.classes));
    return std::nullopt;
  }
  const std::vector<int> inputs{prediction, network_.target};
  const auto value = add_node(choice.name, choice.arguments, loss_path_ + "." + choice.name, name, inputs, choice.where);
  if (!value) return std::nullopt;
  network_.nodes.back().is_loss = true;
  network_.nodes.back().loss_weight = weight;
  return value;
}

void NetworkBuilder::finish(int prediction) {
  network_.prediction = prediction;
  const bool added = add_loss(prediction, 1, k_loss_name, network_.nodes.back().where).has_value();
  check_costs();
  if (added && problems_.empty()) check_every_value_is_used(prediction);
}

void NetworkBuilder::check_every_value_is_used(int prediction) {
  for (const Node& node : network_.nodes) {
    const Value& value = network_.values[static_cast<size_t>(node.output)];
    const bool left_out = std::find(heads_.begin(), heads_.end(), node.output) != heads_.end();
    if (value.consumers.empty() && !node.is_loss && !left_out)
      problems_.add(node.where, "network",
                    fmt::format("the output of '{}' is used by nobody; name it in some `inputs:`, or remove it", node.name));
  }
  if (loss_ != nullptr && !network_.values[static_cast<size_t>(prediction)].wants_gradient)
    problems_.add(network_.nodes.back().where, "network", "the network has no parameters: there is nothing to train");
}

namespace {

/// The one value that the network ends with, or nothing and a fault.
std::optional<int> prediction_of(NetworkBuilder& builder, const base::Tree& definition, const std::string& path) {
  const auto last = builder.add_definition(definition, path);
  if (!last) return std::nullopt;
  if (last->values.size() != 1) {
    builder.problems().add(
        definition.where(), path,
        fmt::format("the last entry gives {} values: let one more entry take the one that is the prediction", last->size_text()));
    return std::nullopt;
  }
  if (last->values.front() != 0) return last->values.front();
  builder.problems().add(definition.where(), path, "the network is empty: at least one layer is wanted");
  return std::nullopt;
}

}  // namespace

Network build_network(const base::Tree& definition, const std::string& path, const base::Tree& loss, const SampleShapes& data,
                      const LayerTypes& types, const CompositeTypes& composites, base::Problems& problems) {
  NetworkBuilder builder(types, composites, data, &loss, "train.loss", problems);
  if (const auto prediction = prediction_of(builder, definition, path)) builder.finish(*prediction);
  return builder.take();
}

Network build_layers(const base::Tree& definition, const std::string& path, const SampleShapes& data, const LayerTypes& types,
                     const CompositeTypes& composites, base::Problems& problems) {
  NetworkBuilder builder(types, composites, data, nullptr, "", problems);
  if (const auto prediction = prediction_of(builder, definition, path)) builder.finish(*prediction);
  return builder.take();
}

}  // namespace gpipe::graph
