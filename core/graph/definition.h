// A network definition as data: parameters, blocks and the list of layers. Files and includes are merged in before
// (app/network_file.h); the builder (core/graph/builder.h) expands it. Used by one thread while a network is built.
//
//   params: {L: 18, D: 256}        # values for ${...}; one without a value must be given
//   input: {shape: [224, 224, 3]}  # for `describe` only; data brings its own
//   blocks:
//     cell: {params: {c: , k: 3}, inputs: [x, skip], outputs: [y, x], layers: [...]}
//   layers: [...]
//
// A plain list is the same as `layers` alone.
#pragma once

#include "core/base/expression.h"
#include "core/base/fields.h"
#include "core/base/problems.h"
#include "core/base/tree.h"

#include <map>
#include <string>
#include <vector>

namespace gpipe::graph {

/// The keys of a definition, not read any further.
struct DefinitionParts {
  base::Tree params, input, blocks, layers;
};
base::FieldSet<DefinitionParts> definition_fields();

/// The keys of one block.
struct BlockParts {
  base::Tree params, layers;
  std::vector<std::string> inputs{"input"}, outputs;
};
base::FieldSet<BlockParts> block_fields();

/// A list of layers under a name, with parameters and inputs of its own.
struct Block {
  std::string name;
  std::string path;   // dotted, of the block in the configuration
  base::Tree params;  // map of names and defaults; null: must be given
  base::Tree layers;  // list
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;  // empty: what the last entry gives
  base::Location where;
};

struct Definition {
  base::Tree params;  // map, or null
  base::Tree layers;
  std::string layers_path;
  std::map<std::string, Block> blocks;
};

/// Takes a definition apart. `taken` are the words that no block may be named. All faults go to `problems`.
Definition read_definition(const base::Tree& tree, const std::string& path, const std::vector<std::string>& taken,
                           base::Problems& problems);

/// The parameters with their values: those of `given` (already without `${...}`; a map or null), else the defaults, which may
/// use `outer` and the parameters before them. Faults, missing ones included, go to `problems`.
base::Names parameter_values(const base::Tree& params, const base::Tree& given, const base::Names* outer, const std::string& path,
                             base::Problems& problems);

/// Is it a name for entries and blocks: letters, digits, '_' and '-', up to 100?
bool is_entry_name(const std::string& name);

}  // namespace gpipe::graph
