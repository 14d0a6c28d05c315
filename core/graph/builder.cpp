#include "core/graph/builder.h"

#include "core/base/error.h"
#include "core/base/fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace gpipe::graph {
namespace {

const std::string k_loss_name = "loss";
constexpr int k_most_lists = 200000;  // what repeat may blow a few lines up to

}  // namespace

/// The parts of one entry: its type with arguments, and what stands beside it, all with values for `${...}` but `arguments`.
struct NetworkBuilder::Entry {
  std::string type;
  base::Tree arguments;
  std::optional<base::Tree> name, inputs, cost, tied;
  base::Location where;
};

NetworkBuilder::NetworkBuilder(const LayerTypes& layers, const CompositeTypes& composites, const SampleShapes& data,
                               const base::Tree* loss, const std::string& loss_path, base::Problems& problems)
    : layers_(layers),
      composites_(composites),
      data_(data),
      loss_(loss),
      loss_path_(loss_path),
      problems_(problems),
      names_(&parameters_) {
  network_.values.push_back({data.input, data.input_type, -1, {}, false});
  network_.values.push_back({data.target, data.target_type, -1, {}, false});
}

NetworkBuilder::Opened::Opened(NetworkBuilder& builder, Scope scope, const base::Names& names)
    : builder_(builder), outer_(builder.names_) {
  builder_.scopes_.push_back(std::move(scope));
  builder_.names_ = &names;
}

NetworkBuilder::Opened::~Opened() {
  builder_.scopes_.pop_back();
  builder_.names_ = outer_;
}

std::string Bundle::size_text() const {
  return labels.empty() ? fmt::format("{}", values.size()) : fmt::format("{} ({})", values.size(), fmt::join(labels, ", "));
}

std::optional<int> Expansion::one_input(const std::string& type) const {
  if (inputs.values.size() == 1) return inputs.values.front();
  builder.problems().add(where, path,
                         fmt::format("{} takes 1 input, found {}; name it with `inputs: [a]`", type, inputs.size_text()));
  return std::nullopt;
}

std::optional<NetworkBuilder::Entry> NetworkBuilder::read_entry(const base::Tree& tree, const std::string& path) {
  if (tree.is_scalar()) {
    // `- ${word}`: a type, or a whole entry, that is passed as a parameter.
    const auto word = base::substitute(tree, *names_, path, problems_);
    if (!word) return std::nullopt;
    if (word->is_scalar()) return Entry{.type = word->text(), .where = word->where()};
    if (word->is_map()) return read_entry(*word, path);
    problems_.add(tree.where(), path, fmt::format("a layer is wanted, found {}", word->kind_words()));
    return std::nullopt;
  }
  if (!tree.is_map()) {
    problems_.add(tree.where(), path,
                  fmt::format("a layer is a word or a one-key map such as `conv2d: {{...}}`, not {}", tree.kind_words()));
    return std::nullopt;
  }
  Entry out;
  std::vector<std::string> types;
  const size_t faults = problems_.errors().size();
  for (const auto& [key, value] : tree.members()) {
    if (key == "name") {
      out.name = base::substitute(value, *names_, path + ".name", problems_);
    } else if (key == "inputs") {
      out.inputs = base::substitute(value, *names_, path + ".inputs", problems_);
    } else if (key == "cost") {
      out.cost = base::substitute(value, *names_, path + ".cost", problems_);
    } else if (key == "tied") {
      out.tied = base::substitute(value, *names_, path + ".tied", problems_);
    } else {
      types.push_back(key);
      out.type = key;
      out.arguments = value;
      out.where = tree.key_where(key);
    }
  }
  if (problems_.errors().size() != faults) return std::nullopt;
  if (types.size() == 1) return out;
  problems_.add(
      tree.where(), path,
      types.empty()
          ? std::string("no layer type beside `name`, `inputs`, `tied` and `cost`; write it as a key, e.g. `relu:`")
          : fmt::format("one layer type is wanted, found {}: start a new list entry (`- `) for each", fmt::join(types, ", ")));
  return std::nullopt;
}

std::optional<int> NetworkBuilder::find_value(const base::Tree& name, const std::string& path) {
  const auto end = std::find_if(scopes_.rbegin(), scopes_.rend(), [](const Scope& scope) { return scope.closed; });
  const auto last = end == scopes_.rend() ? end : std::next(end);
  for (auto scope = scopes_.rbegin(); scope != last && name.is_scalar(); ++scope)
    if (const auto found = scope->values.find(name.text()); found != scope->values.end()) return found->second;
  std::vector<std::string> known;
  for (auto scope = scopes_.rbegin(); scope != last; ++scope)
    for (const auto& value : scope->values) known.push_back(value.first);
  const std::string near = base::nearest(name.text(), known);
  problems_.add(
      name.where(), path,
      fmt::format("no earlier entry is named '{}'{}", name.text(),
                  near.empty() ? "; give the entry that is meant a `name:`" : fmt::format("; did you mean '{}'?", near)));
  return std::nullopt;
}

std::optional<Bundle> NetworkBuilder::read_inputs(const base::Tree& inputs, const std::string& path) {
  const std::vector<base::Tree> one{inputs};
  if ((!inputs.is_list() && !inputs.is_scalar()) || (inputs.is_list() && inputs.items().empty())) {
    problems_.add(inputs.where(), path,
                  fmt::format("names of earlier entries are wanted, e.g. [a, b], found {}",
                              inputs.is_list() ? "an empty list" : inputs.kind_words()));
    return std::nullopt;
  }
  Bundle bundle({}, {});
  for (const base::Tree& item : inputs.is_list() ? inputs.items() : one) {
    const auto value = find_value(item, path);
    if (!value) return std::nullopt;
    bundle.values.push_back(*value);
  }
  return bundle;
}

std::optional<Bundle> NetworkBuilder::add_definition(const base::Tree& tree, const std::string& path) {
  std::vector<std::string> taken = known_types(false);
  for (const std::string& name : known_types(true)) taken.push_back(name);
  for (const char* beside : {"name", "inputs", "tied", "cost"}) taken.emplace_back(beside);
  const size_t faults = problems_.errors().size();
  definition_ = read_definition(tree, path, taken, problems_);
  parameters_ = parameter_values(definition_.params, {}, nullptr, path + ".params", problems_);
  if (problems_.errors().size() != faults) return std::nullopt;
  return add_list(definition_.layers, definition_.layers_path, "", 0);
}

std::optional<Bundle> NetworkBuilder::add_list(const base::Tree& list, const std::string& path, const std::string& prefix,
                                               const Bundle& input, const base::Names* more) {
  Scope scope;
  scope.values["input"] = input.values.front();
  for (size_t i = 0; i < input.labels.size(); ++i) scope.values["input." + input.labels[i]] = input.values[i];
  if (scopes_.empty()) scope.values["target"] = network_.target;
  const Opened opened(*this, std::move(scope), more != nullptr ? *more : *names_);
  return add_entries(list, path, prefix, input);
}

std::optional<int> NetworkBuilder::add_branch(const base::Tree& list, const std::string& path, const std::string& prefix,
                                              int input) {
  const auto bundle = add_list(list, path, prefix, input);
  if (!bundle) return std::nullopt;
  if (bundle->values.size() == 1) return bundle->values.front();
  problems_.add(list.where(), path, fmt::format("these layers must give one value, found {}", bundle->size_text()));
  return std::nullopt;
}

std::optional<Bundle> NetworkBuilder::add_entries(const base::Tree& list, const std::string& path, const std::string& prefix,
                                                  Bundle input) {
  if (!list.is_list()) {
    problems_.add(list.where(), path, fmt::format("a list of layers is wanted, found {}", list.kind_words()));
    return std::nullopt;
  }
  if (++lists_ > k_most_lists) throw base::ConfigError("{}: repeats make more than {} lists of layers", path, k_most_lists);
  std::optional<Bundle> current = std::move(input);
  for (size_t i = 0; i < list.items().size() && current; ++i)
    current = add_entry(list.items()[i], fmt::format("{}.{}", path, i), prefix, *current);
  return current;
}

void NetworkBuilder::unknown_type(const Entry& entry, const std::string& path) {
  if (find_layer(entry.type) != nullptr) {
    problems_.add(entry.where, path, fmt::format("'{}' is a loss: it goes to train.loss, not into the network", entry.type));
    return;
  }
  std::vector<std::string> known = known_types(false);
  for (const auto& block : definition_.blocks) known.push_back(block.first);
  const std::string near = base::nearest(entry.type, known);
  problems_.add(entry.where, path,
                fmt::format("unknown layer '{}'{}; known: {}", entry.type,
                            near.empty() ? "" : fmt::format(", did you mean '{}'?", near), fmt::join(known, ", ")));
}

std::optional<std::string> NetworkBuilder::local_name(const Entry& entry, const std::string& path) {
  Scope& scope = scopes_.back();
  const auto taken = [&](const std::string& name) { return scope.values.contains(name) || name == k_loss_name; };
  int& count = scope.counters[entry.type];
  std::string local = fmt::format("{}_{}", entry.type, ++count);
  if (!entry.name) {
    while (taken(local)) local = fmt::format("{}_{}", entry.type, ++count);
    return local;
  }
  local = entry.name->text();
  if (!entry.name->is_scalar() || !is_entry_name(local)) {
    problems_.add(entry.name->where(), path + ".name", "a name has letters, digits, '_' and '-', up to 100 of them");
    return std::nullopt;
  }
  if (!taken(local)) return local;
  problems_.add(entry.name->where(), path + ".name", fmt::format("the name '{}' is taken already in this list", local));
  return std::nullopt;
}

void NetworkBuilder::remember(const std::string& local, const Bundle& bundle) {
  auto& values = scopes_.back().values;
  values[local] = bundle.values.front();
  for (size_t i = 0; i < bundle.labels.size(); ++i) values[local + "." + bundle.labels[i]] = bundle.values[i];
}

std::optional<Bundle> NetworkBuilder::add_entry(const base::Tree& tree, const std::string& path, const std::string& prefix,
                                                const Bundle& current) {
  auto entry = read_entry(tree, path);
  if (!entry) return std::nullopt;
  const auto block = definition_.blocks.find(entry->type);
  const bool is_block = block != definition_.blocks.end();
  const LayerType* layer = find_layer(entry->type);
  // concat is both: with values to join it is the layer, with branches to make the composite.
  const bool joins = layer != nullptr && (entry->inputs || current.values.size() > 1);
  const CompositeType* composite = joins ? nullptr : find_composite(entry->type);
  if (!is_block && composite == nullptr && (layer == nullptr || layer->is_loss)) {
    unknown_type(*entry, path);
    return std::nullopt;
  }
  const auto local = local_name(*entry, path);
  if (!local) return std::nullopt;
  std::optional<Bundle> inputs = current;
  if (entry->inputs) inputs = read_inputs(*entry->inputs, path + ".inputs");
  if (!inputs) return std::nullopt;
  const std::string name = prefix.empty() ? *local : prefix + "." + *local;
  const std::string inner = path + "." + entry->type;
  if (entry->arguments.is_null()) entry->arguments.set_where(entry->where);
  const auto arguments = with_values(entry->arguments, inner, composite != nullptr);
  if (!arguments) return std::nullopt;
  const auto first = static_cast<int>(network_.nodes.size());
  const Expansion use{*this, *arguments, inner, name, *inputs, entry->where};
  const auto given = is_block               ? add_block(block->second, use)
                     : composite != nullptr ? composite->expand(use)
                                            : add_layer(entry->type, use);
  if (!given) return std::nullopt;
  if (entry->tied) tie(*entry->tied, path + ".tied", !is_block && composite == nullptr ? first : -1);
  remember(*local, *given);
  read_cost(entry->cost, path + ".cost", name, first, entry->where);
  return given;
}

}  // namespace gpipe::graph
