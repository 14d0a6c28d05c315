// NetworkBuilder: expands a network definition into nodes. Composites (layers/ has one file each) are functions that call
// back into it; blocks are composites that the definition itself brings. Nothing of either is left in the graph but the
// names.
//
// An entry is a plain word (`relu`) or a map with one layer, composite or block as its key (`conv2d: {...}`), and beside it
// optionally `name`, `tied` (parameters that are those of earlier entries), `inputs` (names of earlier entries; `input` is the
// list's own, `target` what the data wants predicted) and, in the network's own list, `cost`.
// What flows from entry to entry is a bundle of one or more values; an entry without `inputs` takes all that the one before it
// gave. `${...}` is replaced when an entry is reached, with the parameters of its block and the indices of the repeats around
// it. Used by one thread while a network is built.
#pragma once

#include "core/base/choice.h"
#include "core/graph/definition.h"
#include "core/graph/network.h"

#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace gpipe::graph {

class NetworkBuilder;

/// One value or several. `labels` are the names by which `inputs: [entry.label]` picks one: as many as values, or none.
struct Bundle {
  Bundle(int value) : values{value} {}
  Bundle(std::vector<int> all, std::vector<std::string> names) : values(std::move(all)), labels(std::move(names)) {}

  /// "2 (y, skip)"
  std::string size_text() const;

  std::vector<int> values;
  std::vector<std::string> labels;
};

/// What a composite is given to expand: its arguments, the names to use, and the values it works on. Lists in the arguments
/// still have their `${...}`, everything else has values.
struct Expansion {
  NetworkBuilder& builder;
  const base::Tree& arguments;
  std::string path;  // dotted path of the entry in the configuration
  std::string name;  // the composite's own full name: prefix of all its nodes
  const Bundle& inputs;
  base::Location where;

  /// For a composite that works on one value: that value, or nothing and a fault that names `type`.
  std::optional<int> one_input(const std::string& type) const;
};

/// One row of the list of composites.
struct CompositeType {
  std::string name;
  std::string summary;
  /// Lays down the nodes; what the composite gives, or nothing when `problems` got an entry.
  std::optional<Bundle> (*expand)(const Expansion& expansion);
  base::FieldTable (*fields)();
};

class NetworkBuilder {
 public:
  /// Without a `loss` (null) there will be none, and auxiliary ones are left out: for looking at a network.
  NetworkBuilder(const LayerTypes& layers, const CompositeTypes& composites, const SampleShapes& data, const base::Tree* loss,
                 const std::string& loss_path, base::Problems& problems);

  base::Problems& problems() { return problems_; }

  /// Expands the whole definition; what its last entry gives. Called once.
  std::optional<Bundle> add_definition(const base::Tree& definition, const std::string& path);
  /// The entries of `list` in order, starting from `input`, in a scope of names of their own under `prefix`. `more` are
  /// values for its `${...}` beside those that hold already (its outer names are values()).
  std::optional<Bundle> add_list(const base::Tree& list, const std::string& path, const std::string& prefix, const Bundle& input,
                                 const base::Names* more = nullptr);
  /// The same for a list that must give one value.
  std::optional<int> add_branch(const base::Tree& list, const std::string& path, const std::string& prefix, int input);
  /// One node of a known type: `arguments` without `${...}` (null for none).
  std::optional<int> add_node(const std::string& type, const base::Tree& arguments, const std::string& path,
                              const std::string& name, std::span<const int> inputs, const base::Location& where);
  const Shape& shape_of(int value) const { return network_.values[static_cast<size_t>(value)].shape; }
  /// What `${...}` knows here.
  const base::Names& values() const { return *names_; }

  /// A node that compares `prediction` with the targets by the loss of the configuration: the main one or an auxiliary one.
  /// The value that it gives; `prediction` itself where there is no loss.
  std::optional<int> add_loss(int prediction, double weight, const std::string& name, const base::Location& where);
  /// Appends the main loss on `prediction`, and checks what can only be said of the whole: costs of all entries or none,
  /// values that nobody uses, something to learn.
  void finish(int prediction);
  Network take() { return std::move(network_); }

 private:
  /// Local names of one list, of values and of types so far.
  struct Scope {
    std::map<std::string, int> values;
    std::map<std::string, int> counters;
    bool closed = false;  // a block's: names outside are not seen
  };
  /// Opens a scope, and values for `${...}` that hold in it, as long as it lives.
  class Opened {
   public:
    Opened(NetworkBuilder& builder, Scope scope, const base::Names& names);
    Opened(const Opened&) = delete;
    Opened& operator=(const Opened&) = delete;
    ~Opened();

   private:
    NetworkBuilder& builder_;
    const base::Names* outer_;
  };
  struct Entry;

  std::optional<Bundle> add_entries(const base::Tree& list, const std::string& path, const std::string& prefix, Bundle input);
  std::optional<Bundle> add_entry(const base::Tree& entry, const std::string& path, const std::string& prefix,
                                  const Bundle& current);
  std::optional<Entry> read_entry(const base::Tree& entry, const std::string& path);
  std::optional<base::Tree> with_values(const base::Tree& arguments, const std::string& path, bool lists_later);
  std::optional<std::string> local_name(const Entry& entry, const std::string& path);
  std::optional<Bundle> add_layer(const std::string& type, const Expansion& use);
  std::optional<Bundle> add_block(const Block& block, const Expansion& use);
  std::optional<Bundle> block_outputs(const Block& block);
  bool may_enter(const Block& block, const Expansion& use);
  bool check_count(const LayerType& type, size_t count, const std::string& found, const std::string& path,
                   const base::Location& where);
  void remember(const std::string& local, const Bundle& bundle);
  void unknown_type(const Entry& entry, const std::string& path);
  /// `cost` of an entry that became the nodes from `first` on; all entries of the network's own list have one, or none.
  void read_cost(const std::optional<base::Tree>& cost, const std::string& path, const std::string& name, int first,
                 const base::Location& where);
  void check_costs();
  void check_every_value_is_used(int prediction);
  /// `tied: {weight: embedding_1.weight}` of the node `user`: its parameters that are those of earlier nodes.
  void tie(const base::Tree& tied, const std::string& path, int user);
  std::optional<Bundle> read_inputs(const base::Tree& inputs, const std::string& path);
  std::optional<int> find_value(const base::Tree& name, const std::string& path);
  const LayerType* find_layer(const std::string& name) const;
  const CompositeType* find_composite(const std::string& name) const;
  std::vector<std::string> known_types(bool losses) const;

  const LayerTypes& layers_;
  const CompositeTypes& composites_;
  const SampleShapes& data_;
  const base::Tree* loss_;
  const std::string loss_path_;
  base::Problems& problems_;
  Network network_;
  Definition definition_;
  base::Names parameters_;                 // of the network
  const base::Names* names_;               // that hold now
  std::vector<const Block*> open_;         // blocks that are being expanded, outermost first
  std::vector<int> heads_;                 // predictions of auxiliary losses that were left out
  int lists_ = 0;                          // read so far
  std::vector<std::string> without_cost_;  // entries of the network's own list
  base::Location first_without_cost_;
  std::vector<Scope> scopes_;
};

}  // namespace gpipe::graph
