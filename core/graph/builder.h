// NetworkBuilder: reads the network list of a configuration and lays down nodes. Composites (layers/ has one file each)
// are functions that call back into it; nothing of them is left in the graph but the names.
//
// An entry is a plain word (`relu`) or a map with one layer key (`conv2d: {...}`), and beside it optionally `name`,
// `tied` (parameters that are those of earlier entries), `inputs` (names of earlier entries; `input` is the list's own, `target`
// what the data wants predicted) and, in the network's own list, `cost`. Without `inputs` an entry takes what the one before it
// gave. Used by one thread while a network is built.
#pragma once

#include "core/base/choice.h"
#include "core/graph/network.h"

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace gpipe::graph {

class NetworkBuilder;

/// What a composite is given to expand: its arguments, the names to use, and the values it works on.
struct Expansion {
  NetworkBuilder& builder;
  const base::Tree& arguments;
  std::string path;  // dotted path of the entry in the configuration
  std::string name;  // the composite's own full name: prefix of all its nodes
  std::span<const int> inputs;
  base::Location where;
};

/// One row of the list of composites.
struct CompositeType {
  std::string name;
  std::string summary;
  /// Lays down the nodes; the value the composite gives, or nothing when `problems` got an entry.
  std::optional<int> (*expand)(const Expansion& expansion);
  base::FieldTable (*fields)();
};

class NetworkBuilder {
 public:
  NetworkBuilder(const LayerTypes& layers, const CompositeTypes& composites, const SampleShapes& data, const base::Tree& loss,
                 const std::string& loss_path, base::Problems& problems);

  base::Problems& problems() { return problems_; }

  /// The entries of `list` in order, starting from `input`, in a scope of names of their own under `prefix`.
  std::optional<int> add_list(const base::Tree& list, const std::string& path, const std::string& prefix, int input);
  /// One node of a known type: `arguments` as the configuration has them (null for none).
  std::optional<int> add_node(const std::string& type, const base::Tree& arguments, const std::string& path,
                              const std::string& name, std::span<const int> inputs, const base::Location& where);
  const Shape& shape_of(int value) const { return network_.values[static_cast<size_t>(value)].shape; }

  /// A node that compares `prediction` with the targets by the loss of the configuration: the main one or an auxiliary one.
  std::optional<int> add_loss(int prediction, double weight, const std::string& name, const base::Location& where);
  /// Appends the main loss on `prediction` and gives the network away.
  Network finish(int prediction);
  Network take() { return std::move(network_); }

 private:
  using Scope = std::map<std::string, int>;  // local names -> values

  std::optional<int> add_entry(const base::Tree& entry, const std::string& path, const std::string& prefix, int current);
  /// `cost` of an entry that became the nodes from `first` on; all entries of the network's own list have one, or none.
  void read_cost(const base::Tree* cost, const std::string& path, const std::string& name, int first,
                 const base::Location& where);
  void check_costs();
  /// `tied: {weight: embedding_1.weight}` of the node `user`: its parameters that are those of earlier nodes.
  void tie(const base::Tree& tied, const std::string& path, int user);
  std::optional<std::vector<int>> read_inputs(const base::Tree& inputs, const std::string& path);
  const LayerType* find_layer(const std::string& name) const;
  const CompositeType* find_composite(const std::string& name) const;
  std::vector<std::string> known_types(bool losses) const;
  void check_every_value_is_used(int prediction);

  const LayerTypes& layers_;
  const CompositeTypes& composites_;
  const SampleShapes& data_;
  const base::Tree& loss_;
  const std::string loss_path_;
  base::Problems& problems_;
  Network network_;
  int lists_ = 0;                          // read so far
  std::vector<std::string> without_cost_;  // entries of the network's own list
  base::Location first_without_cost_;
  std::vector<Scope> scopes_;
  std::vector<std::map<std::string, int>> counters_;  // per scope: how many of a type came so far
};

}  // namespace gpipe::graph
