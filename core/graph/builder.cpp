#include "core/graph/builder.h"

#include "core/base/fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <set>

namespace gpipe::graph {
namespace {

const std::string k_loss_name = "loss";
constexpr int k_most_nodes = 100000;  // what repeat may blow a few lines up to

/// The parts of one entry: its type with arguments, and what stands beside it.
struct Entry {
  std::string type;
  base::Tree arguments;
  const base::Tree* name = nullptr;
  const base::Tree* inputs = nullptr;
  const base::Tree* cost = nullptr;
  const base::Tree* tied = nullptr;
  base::Location where;
};

std::optional<Entry> split_entry(const base::Tree& entry, const std::string& path, base::Problems& problems) {
  if (entry.is_scalar()) return Entry{.type = entry.text(), .where = entry.where()};
  if (!entry.is_map()) {
    problems.add(entry.where(), path,
                 fmt::format("a layer is a word or a one-key map such as `conv2d: {{...}}`, not {}", entry.kind_words()));
    return std::nullopt;
  }
  Entry out;
  std::vector<std::string> types;
  for (const auto& [key, value] : entry.members()) {
    if (key == "name") {
      out.name = &value;
    } else if (key == "inputs") {
      out.inputs = &value;
    } else if (key == "cost") {
      out.cost = &value;
    } else if (key == "tied") {
      out.tied = &value;
    } else {
      types.push_back(key);
      out.type = key;
      out.arguments = value;
      out.where = entry.key_where(key);
    }
  }
  if (types.size() == 1) return out;
  problems.add(
      entry.where(), path,
      types.empty()
          ? std::string("no layer type beside `name`, `inputs`, `tied` and `cost`; write it as a key, e.g. `relu:`")
          : fmt::format("one layer type is wanted, found {}: start a new list entry (`- `) for each", fmt::join(types, ", ")));
  return std::nullopt;
}

bool is_good_name(const std::string& name) {
  return !name.empty() && name.size() <= 100 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

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

NetworkBuilder::NetworkBuilder(const LayerTypes& layers, const CompositeTypes& composites, const SampleShapes& data,
                               const base::Tree& loss, const std::string& loss_path, base::Problems& problems)
    : layers_(layers), composites_(composites), data_(data), loss_(loss), loss_path_(loss_path), problems_(problems) {
  network_.values.push_back({data.input, data.input_type, -1, {}, false});
  network_.values.push_back({data.target, data.target_type, -1, {}, false});
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

std::optional<std::vector<int>> NetworkBuilder::read_inputs(const base::Tree& inputs, const std::string& path) {
  std::vector<int> values;
  const std::vector<base::Tree> one{inputs};
  if (!inputs.is_list() && !inputs.is_scalar()) {
    problems_.add(inputs.where(), path,
                  fmt::format("names of earlier entries are wanted, e.g. [a, b], found {}", inputs.kind_words()));
    return std::nullopt;
  }
  for (const base::Tree& item : inputs.is_list() ? inputs.items() : one) {
    std::optional<int> value;
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend() && !value; ++scope)
      if (const auto found = scope->find(item.text()); item.is_scalar() && found != scope->end()) value = found->second;
    if (!value) {
      std::vector<std::string> known;
      for (const Scope& scope : scopes_)
        for (const auto& [name, index] : scope) known.push_back(name);
      const std::string near = base::nearest(item.text(), known);
      problems_.add(
          item.where(), path,
          fmt::format("no earlier entry is named '{}'{}", item.text(),
                      near.empty() ? "; give the entry that is meant a `name:`" : fmt::format("; did you mean '{}'?", near)));
      return std::nullopt;
    }
    values.push_back(*value);
  }
  return values;
}

std::optional<int> NetworkBuilder::add_list(const base::Tree& list, const std::string& path, const std::string& prefix,
                                            int input) {
  if (!list.is_list()) {
    problems_.add(list.where(), path, fmt::format("a list of layers is wanted, found {}", list.kind_words()));
    return std::nullopt;
  }
  if (++lists_ > k_most_nodes) throw base::ConfigError("{}: repeats make more than {} lists of layers", path, k_most_nodes);
  scopes_.push_back({{"input", input}});
  if (scopes_.size() == 1) scopes_.back().emplace("target", network_.target);
  counters_.emplace_back();
  std::optional<int> current = input;
  for (size_t i = 0; i < list.items().size() && current; ++i)
    current = add_entry(list.items()[i], fmt::format("{}.{}", path, i), prefix, *current);
  scopes_.pop_back();
  counters_.pop_back();
  return current;
}

std::optional<int> NetworkBuilder::add_entry(const base::Tree& tree, const std::string& path, const std::string& prefix,
                                             int current) {
  const auto entry = split_entry(tree, path, problems_);
  if (!entry) return std::nullopt;
  const CompositeType* composite =
      entry->inputs != nullptr && find_layer(entry->type) != nullptr ? nullptr : find_composite(entry->type);
  const LayerType* layer = find_layer(entry->type);
  if (composite == nullptr && (layer == nullptr || layer->is_loss)) {
    const auto known = known_types(false);
    const std::string near = base::nearest(entry->type, known);
    problems_.add(entry->where, path,
                  layer != nullptr
                      ? fmt::format("'{}' is a loss: it goes to train.loss, not into the network", entry->type)
                      : fmt::format("unknown layer '{}'{}; known: {}", entry->type,
                                    near.empty() ? "" : fmt::format(", did you mean '{}'?", near), fmt::join(known, ", ")));
    return std::nullopt;
  }
  std::string local = fmt::format("{}_{}", entry->type, ++counters_.back()[entry->type]);
  if (entry->name != nullptr) {
    local = entry->name->text();
    if (!entry->name->is_scalar() || !is_good_name(local)) {
      problems_.add(entry->name->where(), path + ".name", "a name has letters, digits, '_' and '-', up to 100 of them");
      return std::nullopt;
    }
    if (scopes_.back().contains(local) || local == k_loss_name) {
      problems_.add(entry->name->where(), path + ".name", fmt::format("the name '{}' is taken already in this list", local));
      return std::nullopt;
    }
  }
  std::vector<int> inputs{current};
  if (entry->inputs != nullptr) {
    auto named = read_inputs(*entry->inputs, path + ".inputs");
    if (!named) return std::nullopt;
    inputs = std::move(*named);
  }
  const std::string name = prefix.empty() ? local : prefix + "." + local;
  const std::string inner = path + "." + entry->type;
  const auto first = static_cast<int>(network_.nodes.size());
  const auto value = composite != nullptr ? composite->expand({*this, entry->arguments, inner, name, inputs, entry->where})
                                          : add_node(entry->type, entry->arguments, inner, name, inputs, entry->where);
  if (!value) return value;
  if (entry->tied != nullptr) tie(*entry->tied, path + ".tied", composite == nullptr ? first : -1);
  scopes_.back()[local] = *value;
  read_cost(entry->cost, path + ".cost", name, first, entry->where);
  return value;
}

void NetworkBuilder::tie(const base::Tree& tied, const std::string& path, int user) {
  if (!tied.is_map() || user < 0) {
    problems_.add(tied.where(), path,
                  fmt::format("parameters of one layer are tied, as in `tied: {{weight: embedding_1.weight}}`, found {}",
                              user < 0 ? std::string("several layers") : tied.kind_words()));
    return;
  }
  Node& node = network_.nodes[static_cast<size_t>(user)];
  for (const auto& [key, owner] : tied.members()) {
    const auto parameter = std::find_if(node.parameters.begin(), node.parameters.end(),
                                        [&, name = std::string(key)](const ParameterSpec& spec) { return spec.name == name; });
    if (parameter == node.parameters.end()) {
      problems_.add(tied.key_where(key), path, fmt::format("{} has no parameter '{}'", node.type, key));
      continue;
    }
    std::vector<std::string> known;
    std::optional<Tie> found;
    for (int other = 0; other < user; ++other) {
      const std::vector<ParameterSpec>& theirs = network_.nodes[static_cast<size_t>(other)].parameters;
      for (size_t i = 0; i < theirs.size(); ++i) {
        if (!theirs[i].tied_to.empty()) continue;
        known.push_back(network_.nodes[static_cast<size_t>(other)].name + "." + theirs[i].name);
        if (owner.is_scalar() && known.back() == owner.text())
          found = Tie{other, static_cast<int>(i), user, static_cast<int>(parameter - node.parameters.begin())};
      }
    }
    if (!found) {
      const std::string near = base::nearest(owner.text(), known);
      problems_.add(owner.where(), path + "." + key,
                    fmt::format("no earlier parameter is named '{}'{}", owner.text(),
                                near.empty() ? "; wanted a whole name such as embedding_1.weight"
                                             : fmt::format("; did you mean '{}'?", near)));
      continue;
    }
    const ParameterSpec& theirs =
        network_.nodes[static_cast<size_t>(found->owner_node)].parameters[static_cast<size_t>(found->owner_parameter)];
    if (theirs.shape != parameter->shape) {
      problems_.add(owner.where(), path + "." + key,
                    fmt::format("{} is {}, this {} is {}: only parameters of one shape can be tied", owner.text(), theirs.shape,
                                key, parameter->shape));
      continue;
    }
    parameter->tied_to = owner.text();
    network_.ties.push_back(*found);
  }
  std::sort(network_.ties.begin(), network_.ties.end(), [](const Tie& a, const Tie& b) {
    return std::pair(a.user_node, a.user_parameter) < std::pair(b.user_node, b.user_parameter);
  });
}

std::optional<int> NetworkBuilder::add_loss(int prediction, double weight, const std::string& name, const base::Location& where) {
  base::Choice choice{data_.target_type == DType::i32 ? "cross_entropy" : "mse", {}, loss_.is_null() ? where : loss_.where()};
  if (!loss_.is_null()) {
    const auto read = base::read_choice(loss_, loss_path_, "loss", known_types(true), problems_);
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

void NetworkBuilder::read_cost(const base::Tree* cost, const std::string& path, const std::string& name, int first,
                               const base::Location& where) {
  const bool inside = scopes_.size() > 1;
  if (cost == nullptr) {
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

std::optional<int> NetworkBuilder::add_node(const std::string& type_name, const base::Tree& arguments, const std::string& path,
                                            const std::string& name, std::span<const int> inputs, const base::Location& where) {
  const LayerType* type = find_layer(type_name);
  GP_CHECK(type != nullptr);
  const int count = static_cast<int>(inputs.size());
  if (count < type->min_inputs || count > type->max_inputs) {
    problems_.add(where, path,
                  fmt::format("{} takes {} input{}, found {}; name them with `inputs: [a, b]`", type_name,
                              type->min_inputs == type->max_inputs ? fmt::format("{}", type->min_inputs)
                                                                   : fmt::format("{} or more", type->min_inputs),
                              type->max_inputs == 1 ? "" : "s", count));
    return std::nullopt;
  }
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

Network NetworkBuilder::finish(int prediction) {
  network_.prediction = prediction;
  const bool added = add_loss(prediction, 1, k_loss_name, network_.nodes.back().where).has_value();
  check_costs();
  if (added && problems_.empty()) check_every_value_is_used(prediction);
  return std::move(network_);
}

void NetworkBuilder::check_every_value_is_used(int prediction) {
  for (const Node& node : network_.nodes) {
    const Value& value = network_.values[static_cast<size_t>(node.output)];
    if (value.consumers.empty() && !node.is_loss)
      problems_.add(node.where, "network",
                    fmt::format("the output of '{}' is used by nobody; name it in some `inputs:`, or remove it", node.name));
  }
  if (!network_.values[static_cast<size_t>(prediction)].wants_gradient)
    problems_.add(network_.nodes.back().where, "network", "the network has no parameters: there is nothing to train");
}

Network build_network(const base::Tree& list, const std::string& path, const base::Tree& loss, const SampleShapes& data,
                      const LayerTypes& types, const CompositeTypes& composites, base::Problems& problems) {
  NetworkBuilder builder(types, composites, data, loss, "train.loss", problems);
  const auto prediction = builder.add_list(list, path, "", 0);
  if (!prediction) return builder.take();
  if (*prediction == 0) {
    problems.add(list.where(), path, "the network is empty: at least one layer is wanted");
    return builder.take();
  }
  return builder.finish(*prediction);
}

}  // namespace gpipe::graph
