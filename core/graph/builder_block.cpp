// Blocks: lists of layers that the definition names, with parameters, inputs and outputs of their own.
#include "core/graph/builder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace gpipe::graph {
namespace {

constexpr size_t k_deepest = 32;  // blocks in each other

std::string counted(size_t count, const char* noun) { return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s"); }

}  // namespace

std::optional<base::Tree> NetworkBuilder::with_values(const base::Tree& arguments, const std::string& path, bool lists_later) {
  if (!lists_later) return base::substitute(arguments, *names_, path, problems_);
  if (arguments.is_list()) return arguments;
  if (!arguments.is_map()) return base::substitute(arguments, *names_, path, problems_);
  base::Tree out = arguments;
  bool good = true;
  for (auto& [key, value] : out.members()) {
    if (value.is_list()) continue;
    auto replaced = base::substitute(value, *names_, base::detail::join_path(path, key), problems_);
    good = good && replaced;
    if (replaced) value = *std::move(replaced);
  }
  return good ? std::optional(std::move(out)) : std::nullopt;
}

/// Refuses what would never end, and says how the blocks come to use each other.
bool NetworkBuilder::may_enter(const Block& block, const Expansion& use) {
  const auto again = std::find(open_.begin(), open_.end(), &block);
  if (again == open_.end() && open_.size() < k_deepest) return true;
  std::vector<std::string> chain;
  for (auto inner = again == open_.end() ? open_.begin() : again; inner != open_.end(); ++inner) chain.push_back((*inner)->name);
  chain.push_back(block.name);
  problems_.add(use.where, use.path,
                again != open_.end()
                    ? fmt::format("the block uses itself without end: {}", fmt::join(chain, " -> "))
                    : fmt::format("blocks use each other more than {} deep: {}", k_deepest, fmt::join(chain, " -> ")));
  return false;
}

std::optional<Bundle> NetworkBuilder::block_outputs(const Block& block) {
  Bundle outputs({}, {});
  for (const std::string& name : block.outputs) {
    const auto value = find_value(base::Tree::scalar(name, false, block.where), block.path + ".outputs");
    if (!value) return std::nullopt;
    outputs.values.push_back(*value);
    outputs.labels.push_back(name.substr(name.find('.') + 1));
  }
  return outputs;
}

std::optional<Bundle> NetworkBuilder::add_block(const Block& block, const Expansion& use) {
  if (!may_enter(block, use)) return std::nullopt;
  const base::Tree& arguments = use.arguments;
  if (!arguments.is_null() && !arguments.is_map()) {
    problems_.add(arguments.where(), use.path,
                  fmt::format("wanted a map with the parameters of block {}, found {}", block.name, arguments.found()));
    return std::nullopt;
  }
  if (use.inputs.values.size() != block.inputs.size()) {
    problems_.add(use.where, use.path,
                  fmt::format("block {} takes {} ({}), found {}; name them with `inputs: [a, b]`", block.name,
                              counted(block.inputs.size(), "input"), fmt::join(block.inputs, ", "), use.inputs.size_text()));
    return std::nullopt;
  }
  const base::Problems::Within within(
      problems_, fmt::format("in block {}{}", block.name, use.where.file ? " used at " + use.where.text() : std::string()));
  const size_t faults = problems_.errors().size();
  const base::Names names = parameter_values(block.params, arguments, &parameters_, use.path, problems_);
  if (problems_.errors().size() != faults) return std::nullopt;
  Scope scope;
  scope.closed = true;
  for (size_t i = 0; i < block.inputs.size(); ++i) scope.values[block.inputs[i]] = use.inputs.values[i];
  const Opened opened(*this, std::move(scope), names);
  open_.push_back(&block);
  const std::vector<std::string> labels = block.inputs.size() > 1 ? block.inputs : std::vector<std::string>();
  auto given = add_entries(block.layers, block.path + ".layers", use.name, Bundle(use.inputs.values, labels));
  open_.pop_back();
  if (given && !block.outputs.empty()) given = block_outputs(block);
  return given;
}

}  // namespace gpipe::graph
